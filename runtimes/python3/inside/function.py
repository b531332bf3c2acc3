"""Binding: the environment of the process, and the handler from its file."""
import gc
import os
import sys
from _contextvars import copy_context

from _hearth import output, renewal
from _hearth.content import Refusal

_COROUTINE = 0x80  # inspect.CO_COROUTINE


class Function:
    """The function that this process serves, once it is loaded. `head` is that of its bind."""

    def __init__(self, head, code):
        self.head = head
        self.concurrency = head["concurrency"]
        self._code = code

    def load(self):
        """Raises whatever the module raises, and Refusal if it has no such handler."""
        gc.disable()  # What a module makes while it is imported stays.
        os.environ.clear()
        os.environ.update(self.head["environment"])
        if "TZ" in os.environ:
            import time

            time.tzset()
        _follow_locale()
        output.follow(os.environ.get("PYTHONIOENCODING", ""))
        os.chdir(self.head["working_directory"])
        if not sys.stdlib_module_names.isdisjoint(name.removesuffix(".py") for name in os.listdir(self._code)):
            from _hearth import deferred

            deferred.load("asyncio")  # As in a cell that was idle: the same names belong to the standard library.
        self._extend_path()
        if "random" in sys.modules:
            sys.modules["random"].seed()
        path, _, name = self.head["handler"].partition(":")
        sys.argv = [f"{self._code}/{path}"]
        self.handler = _attribute(self._import(path), path, name or "handler")
        self.is_async = _is_async(self.handler)
        self.context = copy_context()
        gc.freeze()
        gc.enable()

    def _extend_path(self):
        code = self._code
        version = "python%d.%d" % sys.version_info[:2]
        for name in ("site-packages", "python", f".venv/lib/{version}/site-packages"):
            _add_packages(f"{code}/{name}")
        sys.path[:0] = [code, *filter(None, os.environ.get("PYTHONPATH", "").split(":"))]
        # Those of the image, which `-S` leaves out.
        for folder in (f"/usr/local/lib/{version}/dist-packages", "/usr/lib/python3/dist-packages"):
            if os.path.isdir(folder):
                sys.path.append(folder)

    def _import(self, path):
        file = f"{self._code}/{path}"
        if not os.path.isfile(file):
            raise Refusal("HandlerFileMissing", f"handler file does not exist in the code: {path}")
        folder, _, base = path.rpartition("/")
        stem = base.removesuffix(".py")
        names = [name for name in folder.split("/") if name not in ("", ".")] + [stem]
        own = f"{self._code}/{folder}"
        if folder and not os.path.isfile(f"{own}/__init__.py"):
            sys.path.insert(1, own)
        # A module of the standard library or of this process may have the name already.
        if all(name.isidentifier() for name in names) and names[0] not in {*sys.modules, *sys.stdlib_module_names}:
            name = ".".join(names)
            __import__(name)
            module = sys.modules[name]
            if getattr(module, "__file__", None) == os.path.normpath(file):
                return module
        return _import_file("_handler", file)


def _follow_locale():
    """As an interpreter does at its start. One that the image lacks changes nothing."""
    if renewal.locale_of(os.environ):
        import _locale

        try:
            _locale.setlocale(_locale.LC_CTYPE, "")
        except _locale.Error:
            pass


def _import_file(name, file):
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(name, file)
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _add_packages(folder):
    if not os.path.isdir(folder):
        return
    if any(name.endswith(".pth") for name in os.listdir(folder)):
        import site

        site.addsitedir(folder)
    else:
        sys.path.append(folder)


def _attribute(module, path, name):
    found = getattr(module, name, None)
    if callable(found):
        return found
    if hasattr(module, name):
        raise Refusal("HandlerNotAFunction", f"{name} of {path} is not a function: {type(found).__name__}")
    # Functions of the file itself; imported ones are of another module.
    others = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    others = [key for key in others if callable(vars(module)[key]) and not key.startswith("_")]
    names = ", ".join(others)[:1024] or "none"
    raise Refusal("HandlerFunctionMissing", f"{path} has no function {name} (functions: {names}){_suggestion(name, others)}")


def _suggestion(wanted, names):
    """Asks for the name that was meant."""
    near = next((name for name in names if _is_near(wanted.lower(), name.lower())), None)
    return "" if near is None else f": did you mean {near}?"


def _is_near(one, other):
    """True if the names differ in at most two adjacent characters, in number or kind."""
    start = end = 0
    least = min(len(one), len(other))
    while start < least and one[start] == other[start]:
        start += 1
    while end < least - start and one[-1 - end] == other[-1 - end]:
        end += 1
    return max(len(one), len(other)) - start - end <= 2 and start + end > 0


def _is_async(handler):
    while type(handler).__name__ == "partial" and hasattr(handler, "func"):
        handler = handler.func
    code = getattr(handler, "__code__", None)
    if code is None and not isinstance(handler, type):
        code = getattr(type(handler).__call__, "__code__", None)
    return code is not None and bool(code.co_flags & _COROUTINE)
