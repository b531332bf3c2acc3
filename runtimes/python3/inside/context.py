"""The second argument of a handler."""
import time


class Context:
    """Describes one call. README.md lists the attributes."""

    __slots__ = ("_function", "_head", "_environment", "_log")

    def __init__(self, function, head):
        self._function = function
        self._head = head
        self._environment = None
        self._log = None

    @property
    def invocation_id(self):
        return self._head["invocation_id"]

    @property
    def function_id(self):
        return self._function.head["function_id"]

    @property
    def function_name(self):
        return self._function.head["function_name"]

    @property
    def version(self):
        return self._function.head["version"]

    @property
    def memory_limit_mb(self):
        return self._function.head["memory_limit_mb"]

    @property
    def deadline_ms(self):
        return self._head["deadline_ms"]

    def remaining_ms(self):
        return max(0, int(self._head["deadline_ms"] - time.time() * 1000))

    @property
    def trace(self):
        return {"traceparent": self._head["traceparent"], "tracestate": self._head.get("tracestate")}

    @property
    def api(self):
        return self._head.get("api")

    @property
    def environment(self):
        if self._environment is None:
            self._environment = {**self._function.head["environment"], **self._head.get("environment", {})}
        return self._environment

    @property
    def log(self):
        if self._log is None:
            from _hearth.log import Log

            self._log = Log(self.invocation_id)
        return self._log
