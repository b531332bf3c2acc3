"""Imports asyncio in half of its time and memory: modules that its import pulls in, and few functions use, run when an
attribute of them is first read.

D1  A deferred module is the module itself. Its first use runs it, under its import lock, and makes it a plain module.
D2  Constants that the import of asyncio reads are set before the module runs. They have the values that the module sets.
D3  asyncio's logger stands in front of `logging`. Before that module is used, nothing can have asked for debug messages.
"""
import sys
from _frozen_importlib import _find_spec, _ModuleLockManager
from _frozen_importlib_external import PathFinder

ModuleType = type(sys)


class _Deferred(ModuleType):
    def __getattr__(self, name):
        # `import` and `from` look for __path__ to tell packages.
        if name == "__path__":
            raise AttributeError(name)
        with _ModuleLockManager(self.__name__):
            if type(self) is _Deferred:
                self.__class__ = _Running
                try:
                    self.__loader__.exec_module(self)
                except BaseException:
                    self.__class__ = _Deferred
                    raise
                self.__class__ = ModuleType
        return getattr(self, name)


class _Running(ModuleType):
    """A deferred module while it runs. Other threads wait for its end, its own thread sees what it has so far."""

    def __getattr__(self, name):
        with _ModuleLockManager(self.__name__):
            if type(self) is not _Running:
                return getattr(self, name)
        raise AttributeError(f"partially initialized module {self.__name__!r} has no attribute {name!r}")


class _Logger:
    """The logger of asyncio (D3)."""

    def __getattr__(self, name):
        import logging

        return getattr(logging.getLogger("asyncio"), name)

    def debug(self, *arguments, **options):
        if type(sys.modules["logging"]) is ModuleType:
            self.__getattr__("debug")(*arguments, **options)


def _extract_stack(f=None, limit=None):
    """traceback.extract_stack, which _asyncio keeps."""
    import traceback

    traceback.print_stack  # Runs the module.
    return traceback.extract_stack(sys._getframe(1) if f is None else f, limit)


_WAITS = {name: name for name in ("FIRST_COMPLETED", "FIRST_EXCEPTION", "ALL_COMPLETED")}
_DEFERRED = {
    "traceback": {"extract_stack": _extract_stack},
    "logging": {"DEBUG": 10},
    "inspect": {},
    "subprocess": {"PIPE": -1, "STDOUT": -2, "DEVNULL": -3},
    "ssl": {},
    "concurrent.futures": _WAITS,
}
_DEFERRED_PARTS = {"sslproto": {}, "staggered": {}, "log": {"logger": _Logger()}}

# An idle process loads one after the other. Each takes a few milliseconds.
PARTS = ("signal", "json", "selectors", "socket", "threading", "typing", "asyncio", "_hearth.asynchronous", "_hearth.log")


def defer():
    """Before asyncio is imported."""
    if "asyncio" in sys.modules:
        return
    import concurrent

    path = PathFinder.find_spec("asyncio").submodule_search_locations
    for name, constants in _DEFERRED.items():
        parent = concurrent if name.startswith("concurrent.") else None
        module = _defer(name, parent and parent.__path__, constants)
        if parent is not None:
            parent.futures = module
    for name, constants in _DEFERRED_PARTS.items():
        _defer(f"asyncio.{name}", path, constants)


def _defer(name, path, constants):
    if name in sys.modules:
        return sys.modules[name]
    spec = _find_spec(name, path)  # As `import` does: ownership.py changes some modules.
    module = _Deferred(name)
    module.__spec__ = spec
    module.__loader__ = spec.loader
    module.__file__ = spec.origin
    module.__cached__ = spec.cached
    module.__package__ = spec.parent
    if spec.submodule_search_locations is not None:
        module.__path__ = spec.submodule_search_locations
    vars(module).update(constants)
    sys.modules[name] = module
    return module


def load(name):
    """Imports a module. Returns it."""
    if name == "asyncio" and name not in sys.modules:
        defer()
        asyncio = __import__(name)
        for part in _DEFERRED_PARTS:
            setattr(asyncio, part, sys.modules[f"asyncio.{part}"])
    __import__(name)
    return sys.modules[name]
