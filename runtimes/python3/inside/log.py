"""`context.log`: lines of JSON on standard error, each with the id of its invocation."""
import sys
import time
from json import dumps, loads


class Log:
    """Methods take a message, arguments for its % placeholders, and fields by name."""

    def __init__(self, invocation_id):
        self._invocation_id = invocation_id

    def debug(self, message, *arguments, **fields):
        self._write("debug", message, arguments, fields)

    def info(self, message, *arguments, **fields):
        self._write("info", message, arguments, fields)

    def warning(self, message, *arguments, **fields):
        self._write("warn", message, arguments, fields)

    warn = warning

    def error(self, message, *arguments, **fields):
        self._write("error", message, arguments, fields)

    def exception(self, message, *arguments, **fields):
        """Like error, with the traceback of the exception that is being handled."""
        import traceback

        self._write("error", message, arguments, {"stack": traceback.format_exc(), **fields})

    def _write(self, level, message, arguments, fields):
        now = time.time()
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03}Z"
        text = str(message) % arguments if arguments else str(message)
        head = {"time": at, "level": level, "invocation_id": self._invocation_id, "message": text}
        sys.stderr.write(_json({**fields, **head}) + "\n")


def _json(fields):
    """JSON has no NaN and Infinity: the line has them as strings."""
    try:
        return dumps(fields, default=str, allow_nan=False)
    except ValueError:
        return dumps(loads(dumps(fields, default=str), parse_constant=str))
