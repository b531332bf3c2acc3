"""Frames on descriptor 3, as runtimes/minit/protocol.h describes them, and the output of calls.

W1  Each call is answered once: `answer` closes it under the lock. Output that it has later names it too: the daemon adds it to its
    record. What is too much for that goes to the instance.
W2  A frame is written whole, even if a signal handler of the function raises meanwhile: BufferedWriter keeps the rest.
W3  A forked child sends nothing: descriptor 3 is closed in it, its output goes to descriptors 1 and 2.
W4  What was written is out of the process when the write returns: it outlives whatever ends the process next. The only call of
    the process writes to descriptors 1 and 2 themselves, in order with whatever else writes to them. minit gives it what comes
    from there. Other output goes in frames, which name its call.
"""
import os
from _io import BufferedWriter, FileIO
from _struct import Struct
from _thread import RLock
from time import sleep

FD = 3
OPEN, BEGIN, CHUNK, END, RESULT, LOG = range(0x60, 0x66)
RETURNED, FAILED, TIMED_OUT, NOT_LOADED = range(4)

_MORE = 1
_VERSION = 1
_CHUNK_MAX = 64 * 1024
_READ_BYTES = 48 * 1024
_PENDING_MAX = 16 * 1024
_LATER_MAX = 1000
# Waits of a millisecond for a descriptor that a child process made non-blocking, and that is full.
_WAITS_MAX = 1000
_WAIT_S = 0.001
# Output of one call that is sent: minit and the daemon keep 1 MiB at most, and see that there was more.
_LOG_BYTES_MAX = 1024 * 1024 + 64 * 1024
# Output of a call after its answer: `late_output_bytes_max` of src/base/function-limits.ts.
_LATE_BYTES_MAX = 16 * 1024
_HEAD = Struct("<IBI")
_BEGIN_HEAD = Struct("<IBIII")
_RESULT_HEAD = Struct("<IBII")
_LOG_HEAD = Struct("<IBIB")


class Call:
    """A call in flight. With id 0 it is the instance, which is always open."""

    __slots__ = ("id", "invocation_id", "is_sole", "is_open", "stream", "pending", "log_left", "is_gathering", "deadline_ms", "is_late", "task", "timer", "undo")

    def __init__(self, id, is_sole=False):
        """`is_sole`: minit knows of no other call."""
        self.id = id
        self.invocation_id = ""
        self.is_sole = is_sole
        self.is_open = True
        self.stream = 0
        self.pending = None
        self.log_left = _LOG_BYTES_MAX
        self.is_gathering = False


class Requests:
    """Reads requests: pairs of the id and the content."""

    def __init__(self):
        self._left = b""
        self._parts = {}

    def read(self):
        """Waits for bytes. Returns the requests that they complete. At the end of the socket the process ends."""
        try:
            data = os.read(FD, _READ_BYTES)
        except OSError as error:
            os.write(2, b"descriptor 3 cannot be read: %s\n" % str(error).encode())
            os._exit(1)
        if not data:
            os._exit(0)
        if not self._left and len(data) >= 17:
            length, type, id, flags, _ = _BEGIN_HEAD.unpack_from(data)
            if length + 4 == len(data) and type == BEGIN and not flags & _MORE:
                return [(id, data[17:])]
        return self.take(self._left + data)

    def unread(self, ready):
        """Returns the frames of complete requests, and of all behind them."""
        begun = [(id, 0, content) for id, content in ready]
        begun += [(id, _MORE, b"".join(parts)) for id, parts in self._parts.items()]
        frames = [_BEGIN_HEAD.pack(13 + len(content), BEGIN, id, flags, 0) + content for id, flags, content in begun]
        return b"".join([*frames, self._left])

    def take(self, data):
        """Returns the requests that bytes complete, and keeps the rest."""
        whole = []
        at = 0
        while len(data) - at >= 9:
            length, type, id = _HEAD.unpack_from(data, at)
            end = at + 4 + length
            if end > len(data):
                break
            if type == BEGIN:
                content = data[at + 17 : end]
                if data[at + 9] & _MORE:
                    self._parts[id] = [content]
                else:
                    whole.append((id, content))
            elif type == CHUNK:
                self._parts[id].append(data[at + 9 : end])
            elif type == END:
                whole.append((id, b"".join(self._parts.pop(id))))
            at = end
        self._left = data[at:]
        return whole


class Wire:
    def __init__(self):
        self._out = BufferedWriter(FileIO(FD, "wb", closefd=False), 4 * _CHUNK_MAX)
        self._lock = RLock()
        self._later = []
        self.is_child = False
        self.instance = Call(0)
        # Owns output that no context variable gives to a call.
        self.sole = self.instance

    def open(self):
        self._out.write(_HEAD.pack(9, OPEN, 0) + _VERSION.to_bytes(4, "little"))
        self._out.flush()

    def leave(self):
        """Runs in a forked child."""
        self.is_child = True
        try:
            os.close(FD)
        except OSError:
            pass

    def answer(self, call, status, content=b""):
        """Answers a call that is still open, after its output. A forked child that returns from its call ends."""
        if self.is_child:
            os._exit(0 if status == RETURNED else 1)
        with self._lock:
            if not call.is_open:
                return
            if call.pending:
                self._write_log(call)
            at = 0
            while len(content) - at > _CHUNK_MAX:
                self._out.write(_HEAD.pack(5 + _CHUNK_MAX, CHUNK, call.id) + content[at : at + _CHUNK_MAX])
                at += _CHUNK_MAX
            last = content[at:] if at else content
            write, frame = self._out.write, _RESULT_HEAD.pack(9 + len(last), RESULT, call.id, status) + last
            # No signal handler runs between these two lines.
            call.is_open = False
            call.log_left = _LATE_BYTES_MAX
            call.is_gathering = False
            write(frame)
            self._out.flush()

    def log(self, call, stream, data):
        """Sends output of a call."""
        if self.is_child:
            os.write(stream, data)
        elif self._lock._is_owned():
            # A signal handler or a finalizer prints in the middle of another frame (W2).
            if len(self._later) < _LATER_MAX:
                self._later.append((call, stream, data))
        else:
            with self._lock:
                self._log(call, stream, data)
                while self._later:
                    self._log(*self._later.pop(0))

    def flush(self, call):
        if not self.is_child and not self._lock._is_owned():
            with self._lock:
                if call.pending:
                    self._write_log(call)
                    self._out.flush()

    def _log(self, call, stream, data):
        if not call.is_open and call.log_left <= 0:
            call = self.instance
        if call is not self.instance:
            if call.log_left <= 0:
                return
            data = data[: call.log_left]
            call.log_left -= len(data)
        if call.is_sole and call.is_open:
            data = _write_all(stream, data)
            if not data:
                return
        if call.pending and call.stream != stream:
            self._write_log(call)
        call.stream = stream
        call.pending = call.pending + data if call.pending else data
        if len(call.pending) > _PENDING_MAX or not call.is_gathering:
            self._write_log(call)
            self._out.flush()

    def _write_log(self, call):
        pending, call.pending = call.pending, None
        for at in range(0, len(pending), _CHUNK_MAX):
            piece = pending[at : at + _CHUNK_MAX]
            self._out.write(_LOG_HEAD.pack(6 + len(piece), LOG, call.id, call.stream) + piece)


def _write_all(fd, data):
    """Returns the rest that the descriptor did not take: the function closed it, or nobody reads it."""
    waits = 0
    while data and waits < _WAITS_MAX:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:
            sleep(_WAIT_S)
            waits += 1
        except OSError:
            break
    return data
