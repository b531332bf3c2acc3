"""Ends what calls left behind, when none is in flight: processes, timers, asyncio tasks, files in /tmp and /dev/shm.

C1  Processes are ended only where minit is PID 1 and this process its child: elsewhere kill(-1) would reach others.
C2  Processes and files that the module made while it was loaded stay.
C3  A thread cannot be ended: it stays until the instance is recycled. threading.Timer is cancelled.
"""
import os
import sys
from _signal import SIGKILL, alarm  # The module signal makes enums of the constants, which costs milliseconds.

_SCRATCH = ("/tmp", "/dev/shm")
_ROUNDS_MAX = 50
_BLOCK_BYTES = 4096


class Cleanup:
    """Made after the function was loaded. Without `cleanup` of the bind it does nothing."""

    def __init__(self, function, loop=None):
        self._is_on = function.head["cleanup"]
        self._loop = loop
        if not self._is_on:
            return
        is_instance = _is_instance()
        self._processes = _Processes() if is_instance else None
        self._folders = [_Folder(path) for path in _SCRATCH] if is_instance else ()
        self._load = os.open("/proc/loadavg", os.O_RDONLY | os.O_CLOEXEC)
        self._newest = self._newest_pid()

    def run(self, task=None):
        """Runs between calls. `task` is the task of asyncio that runs it."""
        if not self._is_on:
            return
        alarm(0)
        if self._loop is not None:
            self._end_tasks(task)
        newest = self._newest_pid()
        if newest is None or newest != self._newest:
            _cancel_timers()
            if self._processes is not None:
                self._processes.end()
            self._newest = self._newest_pid()
        for folder in self._folders:
            folder.empty()

    def _newest_pid(self):
        """The id that the kernel gave last to a process or thread of the instance: the last word of /proc/loadavg."""
        try:
            return os.pread(self._load, 128, 0).rpartition(b" ")[2]
        except OSError:
            return None  # The function closed the descriptor: each cleanup does all.

    def _end_tasks(self, task):
        for other in sys.modules["asyncio"].all_tasks(self._loop):
            if other is not task:
                other.cancel()
        for handle in self._loop._scheduled:
            handle.cancel()


def _is_instance():
    try:
        with open("/proc/1/cmdline", "rb") as file:
            program, _, rest = file.read().partition(b"\0")
            return os.getppid() == 1 and program.endswith((b"/init", b"/minit")) and rest == b"init\0"
    except OSError:
        return False


def _cancel_timers():
    threading = sys.modules.get("threading")
    for thread in threading.enumerate() if threading is not None else ():
        if isinstance(thread, threading.Timer):
            thread.cancel()


class _Processes:
    def __init__(self):
        self._kept = _others()

    def end(self):
        """Kills all processes but minit, this one, those of the module, and what these started."""
        if self._kept and self._end_others():
            return
        self._kept = set()
        _kill(-1)
        _reap(-1)

    def _end_others(self):
        """Returns False if processes start faster than one by one can be killed."""
        killed = set()
        for _ in range(_ROUNDS_MAX):
            left = [pid for pid in _others() - killed if not self._is_kept(pid)]
            if not left:
                return True
            for pid in left:
                _kill(pid)
            for pid in left:
                _reap(pid)
            killed.update(left)
        return False

    def _is_kept(self, pid):
        """True also for a process that is dead already."""
        state, parent = _look_up(pid)
        if state in b"ZX":
            return True
        while pid not in self._kept and parent > 1 and parent != os.getpid():
            pid, (_, parent) = parent, _look_up(parent)
        return pid in self._kept


def _look_up(pid):
    """Returns the state of a process and its parent."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            state, parent = stat.read().rpartition(b") ")[2].split()[:2]
            return state, int(parent)
    except OSError:
        return b"X", 0


def _others():
    """All processes of the instance but minit and this one."""
    return {int(name) for name in os.listdir("/proc") if name.isdigit()} - {1, os.getpid()}


def _kill(pid):
    try:
        os.kill(pid, SIGKILL)
    except ProcessLookupError:
        pass


def _reap(pid):
    """Waits for a killed child; -1: for all children."""
    try:
        while os.waitpid(pid, 0)[0] and pid == -1:
            pass
    except ChildProcessError:
        pass


class _Folder:
    def __init__(self, path):
        self._path = path
        self._kept = set(os.listdir(path))
        self._seen = self._look()

    def _look(self):
        """What differs after an entry came or went; None where that cannot be told, as it can on a tmpfs."""
        stat = os.stat(self._path)
        return (stat.st_size, stat.st_mtime_ns) if stat.st_size < _BLOCK_BYTES else None

    def empty(self):
        try:
            if self._seen is None or self._look() != self._seen:
                _remove(self._path, [name for name in os.listdir(self._path) if name not in self._kept])
                self._seen = self._look()
        except OSError as error:
            print(f"{self._path} cannot be emptied: {error}", file=sys.stderr)


def _remove(folder, names):
    """Removes entries. Directories move up before they are emptied: no path is longer than three names."""
    number = 0
    while names:
        path = f"{folder}/{names.pop()}"
        try:
            os.unlink(path)
            continue
        except IsADirectoryError:
            pass
        os.chmod(path, 0o700)
        for name in os.listdir(path):
            try:
                os.unlink(f"{path}/{name}")
            except IsADirectoryError:
                number += 1
                names.append(f".left-{number}-{os.getpid()}")
                os.chmod(f"{path}/{name}", 0o700)
                os.rename(f"{path}/{name}", f"{folder}/{names[-1]}")
        os.rmdir(path)
