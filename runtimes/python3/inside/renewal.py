"""Variables that an interpreter reads at its start.

That of a cell has started before its function is known, without looking at variables: for a function with one of these it
becomes a new interpreter, in the place of the same process, with the function's environment.
"""
import os
import sys

from _hearth.wire import FD

# `-u`, `-B` and `-X faulthandler` are always on, PYTHONPATH is read when the function is loaded. `-I` hides PYTHONBREAKPOINT.
_OTHERS = frozenset(("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONFAULTHANDLER", "PYTHONPATH"))
_LATER = frozenset(("PYTHON_GIL", "PYTHON_JIT", "PYTHON_COLORS", "PYTHON_CPU_COUNT", "PYTHON_FROZEN_MODULES"))
_OF_LIBC = ("LD_", "MALLOC_", "GLIBC_TUNABLES")


def reads_at_start(environment):
    return any(map(_is_read, environment)) or _has_other_encoding(locale_of(environment))


def locale_of(environment):
    """The name of the locale for characters."""
    return environment.get("LC_ALL") or environment.get("LC_CTYPE") or environment.get("LANG") or ""


def _has_other_encoding(locale):
    """The interpreter of a cell has UTF-8 for files and names, as that of C and of locales with UTF-8."""
    _, _, encoding = locale.partition("@")[0].partition(".")
    return "@" in locale or encoding.lower() not in ("", "utf-8", "utf8")


def _is_read(name):
    if name.startswith("PYTHON"):
        # Images have variables such as PYTHON_VERSION, which no interpreter reads.
        return name in _LATER if name[6:7] == "_" else name not in _OTHERS
    return name.startswith(_OF_LIBC)


def renew(head, unread):
    """Becomes a new interpreter that takes `unread` before what it reads from descriptor 3. Raises OSError."""
    os.chdir(head["working_directory"])
    memory = os.memfd_create("unread", 0)
    with open(memory, "wb", closefd=False) as file:
        file.write(unread)
    os.set_inheritable(FD, True)
    flags = [flag for flag in sys.orig_argv[1 : -len(sys.argv)] if flag != "-I"]
    # As `-I` does, less the disregard for variables: no folder of the program or the user in sys.path.
    isolation = ["-s", "-P"] if sys.version_info >= (3, 11) else ["-s"]
    environment = {name: value for name, value in head["environment"].items() if name != "PYTHONPATH"}
    words = [sys.executable, *isolation, *flags, *sys.argv, str(memory)]
    os.execve(sys.executable, words, environment)


def take_unread(word):
    """Returns what the interpreter before this one had not worked on."""
    with open(int(word), "rb") as file:
        file.seek(0)
        return file.read()
