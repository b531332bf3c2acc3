"""sys.stdout and sys.stderr of the function: text goes to the call whose context writes it, else to the instance."""
import sys
from _contextvars import ContextVar
from io import BufferedIOBase, TextIOBase

from _hearth.content import Refusal

CALL = ContextVar("call", default=None)


class _Bytes(BufferedIOBase):
    """The binary layer, `sys.stdout.buffer`."""

    def __init__(self, wire, stream):
        self._wire = wire
        self._stream = stream
        self.name = ("", "<stdout>", "<stderr>")[stream]
        self.mode = "wb"

    def write(self, data):
        data = bytes(data)
        self._wire.log(CALL.get() or self._wire.sole, self._stream, data)
        return len(data)

    def flush(self):
        self._wire.flush(CALL.get() or self._wire.sole)

    def writable(self):
        return True

    def fileno(self):
        return self._stream

    def close(self):
        """Keeps the stream open: later calls write to it too."""
        self.flush()


class _Text(TextIOBase):
    encoding = "utf-8"
    errors = "backslashreplace"
    line_buffering = True

    def __init__(self, wire, stream):
        self._wire = wire
        self._stream = stream
        self.buffer = _Bytes(wire, stream)
        self.name = self.buffer.name
        self.mode = "w"

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self._wire.log(CALL.get() or self._wire.sole, self._stream, text.encode("utf-8", self.errors))
        return len(text)

    def flush(self):
        self.buffer.flush()

    def writable(self):
        return True

    def fileno(self):
        return self._stream

    def reconfigure(self, **options):
        """Accepts what io.TextIOWrapper accepts, without effect: output is UTF-8, and not buffered."""

    def close(self):
        """Keeps the stream open: later calls write to it too."""
        self.flush()


def follow(setting):
    """Follows PYTHONIOENCODING, `[encoding][:errors]`. Raises Refusal for an encoding but UTF-8: records are text."""
    encoding, _, errors = setting.partition(":")
    if encoding.replace("_", "-").lower() not in ("", "utf-8", "utf8"):
        message = f"PYTHONIOENCODING has an encoding that output of functions cannot have: {encoding} (expected utf-8)"
        raise Refusal("VariableNotSupported", message)
    if errors:
        sys.stdout.errors = errors


def install(wire):
    sys.stdout = _Text(wire, 1)
    sys.stderr = _Text(wire, 2)
