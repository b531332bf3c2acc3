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

    # The names of AWS Lambda, with its types: numbers of the function are strings.

    @property
    def aws_request_id(self):
        return self._head["invocation_id"]

    @property
    def function_version(self):
        return str(self.version)

    @property
    def memory_limit_in_mb(self):
        return str(self.memory_limit_mb)

    @property
    def invoked_function_arn(self):
        return f"arn:aws:lambda:local:000000000000:function:{self.function_name}:{self.version}"

    @property
    def log_group_name(self):
        return f"/aws/lambda/{self.function_name}"

    @property
    def log_stream_name(self):
        return self.function_version

    client_context = identity = None  # Only AWS's own clients send them.

    def get_remaining_time_in_millis(self):
        return self.remaining_ms()

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
