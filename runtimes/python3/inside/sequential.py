"""Serves a sync handler, one call at a time, in the main thread. A late call is ended by minit, with the process."""
import os

from _hearth.cleanup import Cleanup
from _hearth.content import error_of, payload_of, print_error, result_of, split
from _hearth.context import Context
from _hearth.environment import restore, swap
from _hearth.output import CALL
from _hearth.wire import FAILED, RETURNED, TIMED_OUT, Call

_ANSWERS_MAX = 100
_PLAIN = frozenset((dict, list, str, int, float, bool, type(None)))


def serve(function, wire, requests, ready):
    cleanup = Cleanup(function)
    while True:
        try:
            while ready:
                _serve_call(function, wire, *ready.pop(0))
                cleanup.run()
            ready = requests.read()
        except BaseException as error:
            # A signal handler of the function raised between two calls.
            print_error(error)


def _serve_call(function, wire, id, content):
    call = wire.sole = Call(id, is_sole=True)
    old = answer = raised = None
    try:
        head, body = split(content)
        call.invocation_id = head["invocation_id"]
        if "environment" in head:
            old = swap(head["environment"])
        context = function.context.copy()
        context.run(CALL.set, call)
        answer = run(function, context, head, body)
    except BaseException as error:
        raised = error
    for _ in range(_ANSWERS_MAX):
        if not call.is_open:
            break
        try:
            if answer is None:
                answer = failure(call, raised)
            wire.answer(call, *answer)
        except BaseException:
            pass  # A signal handler of the function raised.
    else:
        os._exit(1)  # The function closed descriptor 3.
    wire.sole = wire.instance
    if old is not None:
        restore(old)


def run(function, context, head, body):
    """Runs a sync handler. Returns the status and content of its answer. Raises what the handler raises."""
    result = context.run(function.handler, payload_of(body), Context(function, head))
    if type(result) not in _PLAIN and hasattr(type(result), "__await__"):
        from _hearth.asynchronous import wait_for

        is_timed_out, result = context.run(wait_for, result, head["deadline_ms"])
        if is_timed_out:
            return TIMED_OUT, b""
    return RETURNED, result_of(result)


def failure(call, error):
    """Prints an exception of a handler. Returns the status and content of its answer."""
    call.is_gathering = True
    print_error(error)
    return FAILED, error_of(error)
