"""Gives what runs outside of a handler to the call that started it: threads, work of pools, and what asyncio reports of tasks.

A context variable names the call (output.CALL). Python copies contexts to tasks and callbacks, but not to threads, and reports
exceptions that nothing retrieved in whatever context the collector happens to run.

O1  A thread has the call that started it. Work of a pool has the call that submitted it, whoever started the pool's thread.
O2  A report of a task or future is printed for the call that made it. Of one of no call, and of an exception in a thread of no
    call, it is printed for the instance: never for the call that happens to be in flight.
O3  Modules of the standard library are changed when the function first imports them, and only where they have what is changed.
"""
import os
import sys
import _thread
from _contextvars import Context, ContextVar, copy_context
from _frozen_importlib_external import PathFinder
from _functools import partial

from _hearth.output import CALL

_LIBRARY = os.__file__.rpartition("/")[0] + "/"
_OWNER = "_hearth_call"
_STARTED = ContextVar("started")  # What a thread runs.


def install(wire):
    """Before anything imports threading."""
    for name in ("start_new_thread", "start_new", "start_joinable_thread"):
        if hasattr(_thread, name):
            setattr(_thread, name, _Starting(getattr(_thread, name), takes_arguments=name != "start_joinable_thread"))
    sys.unraisablehook = _report_unraisable
    sys.meta_path.insert(0, _Finder(wire))


def owner_of_raised(error):
    """The call of the callback of asyncio that raised out of its loop; None if it belongs to no call."""
    at = error.__traceback__
    while at is not None:
        handle = at.tb_frame.f_locals.get("self")
        if at.tb_frame.f_code.co_name == "_run" and hasattr(handle, "_context"):
            return handle._context.get(CALL)
        at = at.tb_next
    return None


class _Starting:
    """Starts threads as functions of _thread do. It adds no frame to the stacks of threads."""

    def __init__(self, start, takes_arguments):
        self._start = start
        self._takes_arguments = takes_arguments

    def __call__(self, function, *rest, **options):
        call = CALL.get()
        if call is None or not callable(function):
            return self._start(function, *rest, **options)
        context = _context_of(call)
        context.run(_STARTED.set, function)
        run = context.run
        if not self._takes_arguments or not rest or not isinstance(rest[0], tuple):
            return self._start(partial(run, function), *rest, **options)
        return self._start(run, (function, *rest[0]), *rest[1:], **options)


def _context_of(call):
    """A context that has nothing but the call, as that of a thread has nothing."""
    context = Context()
    context.run(CALL.set, call)
    return context


def _report_unraisable(args):
    """Also of an exception that ended a thread of _thread: its context has been left then."""
    context = getattr(args.object, "__self__", None)
    if type(context) is not Context or _STARTED not in context:
        sys.__unraisablehook__(args)
        return
    shown = type(args)((args.exc_type, args.exc_value, args.exc_traceback, args.err_msg, context[_STARTED]))
    context.run(sys.__unraisablehook__, shown)


class _Finder:
    def __init__(self, wire):
        self._adapted = {
            "threading": partial(_adapt_threading, wire),
            "asyncio.base_events": partial(_adapt_asyncio, wire),
            "concurrent.futures.thread": _adapt_executor,
            "multiprocessing.pool": _adapt_pool,
            "logging": partial(_adapt_logging, wire),
        }

    def find_spec(self, name, path=None, target=None):
        adapt = self._adapted.get(name)
        if adapt is None:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None or not str(spec.origin).startswith(_LIBRARY):
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            try:
                adapt(module)
            except AttributeError:
                pass  # Another version of Python (O3).

        spec.loader.exec_module = exec_module
        return spec


def _adapt_threading(wire, threading):
    print_exception = threading.excepthook

    def excepthook(args):
        if CALL.get() is None:
            CALL.set(wire.instance)
        print_exception(args)

    threading.excepthook = excepthook
    if sys.version_info < (3, 14):
        return
    start = threading.Thread.start

    def start_in_context(self):
        # Since Python 3.14 a thread runs in a context of its own in that of its start.
        call = CALL.get()
        if call is not None and getattr(self, "_context", call) is None and not sys.flags.thread_inherit_context:
            self._context = _context_of(call)
        start(self)

    threading.Thread.start = start_in_context


def _adapt_executor(thread):
    item = thread._WorkItem
    make, run = item.__init__, item.run

    def __init__(self, *words, **options):
        make(self, *words, **options)
        setattr(self, _OWNER, CALL.get())

    def run_for_owner(self, *words, **options):
        token = CALL.set(getattr(self, _OWNER))
        try:
            run(self, *words, **options)
        finally:
            CALL.reset(token)

    item.__init__, item.run = __init__, run_for_owner


def _adapt_pool(pool):
    def submitting(submit):
        def submit_for_owner(self, func, *words, **options):
            return submit(self, partial(_run_for, CALL.get(), func), *words, **options)

        return submit_for_owner

    for name in ("apply_async", "_map_async", "imap", "imap_unordered"):
        setattr(pool.ThreadPool, name, submitting(getattr(pool.ThreadPool, name)))


def _adapt_logging(wire, logging):
    from _hearth.records import adapt

    adapt(wire, logging)


def _run_for(call, function, /, *words, **options):
    token = CALL.set(call)
    try:
        return function(*words, **options)
    finally:
        CALL.reset(token)


def _adapt_asyncio(wire, base_events):
    loop = base_events.BaseEventLoop
    create_task, create_future, report = loop.create_task, loop.create_future, loop.call_exception_handler

    def owned_task(self, coro, **options):
        task = create_task(self, coro, **options)
        context = options.get("context")
        return _own(task, CALL.get() if context is None else context.get(CALL))

    def owned_future(self):
        return _own(create_future(self), CALL.get())

    def report_to_owner(self, context):
        copy = copy_context()
        copy.run(CALL.set, _owner_of(context) or wire.instance)
        copy.run(report, self, context)

    loop.create_task, loop.create_future, loop.call_exception_handler = owned_task, owned_future, report_to_owner


def _own(future, call):
    if call is not None:
        try:
            setattr(future, _OWNER, call)
        except AttributeError:
            pass  # A task of the function's own factory.
    return future


def _owner_of(context):
    """The call of what call_exception_handler() of asyncio reports."""
    future = context.get("task") or context.get("future")
    if future is None:
        handle = context.get("handle")
        return CALL.get() if handle is None else getattr(handle, "_context", {}).get(CALL)
    call = getattr(future, _OWNER, None)
    if call is None and hasattr(future, "get_context"):
        call = future.get_context().get(CALL)
    # What gather() returns knows no context, its tasks do.
    return call or next((getattr(child, _OWNER, None) for child in getattr(future, "_children", ())), None)
