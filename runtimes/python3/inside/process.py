"""The process from its start to its end: opens, takes its function with `bind`, then serves calls."""
import builtins
import gc
import os
import select
import sys

from _hearth import output, ownership
from _hearth.wire import FD, NOT_LOADED, RETURNED, Call, Requests, Wire

_IDLE_MS = 200


def main(code, unread=None):
    gc.disable()
    os.set_blocking(FD, True)
    os.set_inheritable(FD, False)
    # The site module makes them, which `-S` leaves out.
    builtins.exit = builtins.quit = sys.exit
    wire = Wire()
    os.register_at_fork(after_in_child=wire.leave)
    output.install(wire)
    ownership.install(wire)
    import _hearth.function, _hearth.renewal, _hearth.sequential  # With all that each function needs, before there is one.
    from _hearth.content import split

    gc.freeze()
    gc.enable()
    requests = Requests()
    ready = []
    if unread is None:
        wire.open()
        _prepare()
    else:
        ready = requests.take(_hearth.renewal.take_unread(unread))
    while not ready:
        ready = requests.read()
    (id, content), *ready = ready
    head, _ = split(content)
    begin = (lambda: None) if unread is not None else lambda: _renew(head, requests, [(id, content), *ready])
    function, answer = _bind(wire, Call(id), head, code, begin)
    if function is None:
        _refuse_calls(wire, requests, ready, answer)
    _serving(function)(function, wire, requests, ready)


def _prepare():
    """Imports what an async function needs, while no bind comes: the cell is likely to wait for a function for longer."""
    poll = select.poll()
    poll.register(FD, select.POLLIN)
    if poll.poll(_IDLE_MS):
        return
    from _hearth import deferred

    gc.disable()
    deferred.defer()
    for name in deferred.PARTS:
        if poll.poll(0):
            break
        deferred.load(name)
    gc.freeze()
    gc.enable()


def _renew(head, requests, ready):
    from _hearth import renewal

    if renewal.reads_at_start(head["environment"]):
        renewal.renew(head, requests.unread(ready))


def _bind(wire, call, head, code, begin):
    """Answers the bind. Returns the function, or None and the content of the answer."""
    from _hearth.content import error_of, print_error
    from _hearth.function import Function

    wire.sole = call
    answer = b""
    try:
        begin()
        function = Function(head, code)
        function.load()
    except BaseException as error:
        function = None
        answer = error_of(error, "the module")
        call.is_gathering = True
        print_error(error)
    wire.sole = wire.instance
    wire.answer(call, RETURNED if function is not None else NOT_LOADED, answer)
    return function, answer


def _refuse_calls(wire, requests, ready, answer):
    while True:
        for id, _ in ready:
            wire.answer(Call(id), NOT_LOADED, answer)
        ready = requests.read()


def _serving(function):
    if function.is_async:
        from _hearth.asynchronous import serve
    elif function.concurrency > 1:
        from _hearth.threaded import serve
    else:
        from _hearth.sequential import serve
    return serve
