"""Serves an async handler: all calls share one loop in the main thread."""
import os
import time

from _hearth import deferred

asyncio = deferred.load("asyncio")

from _hearth.cleanup import Cleanup
from _hearth.content import payload_of, print_error, result_of, split
from _hearth.context import Context
from _hearth.environment import restore, swap
from _hearth.output import CALL
from _hearth.ownership import owner_of_raised
from _hearth.sequential import failure
from _hearth.wire import FD, RETURNED, TIMED_OUT, Call

_LAST_WORDS_S = 0.05


def serve(function, wire, requests, ready):
    _Loop(function, wire, requests).serve(ready)


def wait_for(awaitable, deadline_ms):
    """Runs an awaitable that a sync handler returned. Returns (True, None) at the deadline, else False and its result."""

    async def wait():
        try:
            async with asyncio.timeout(deadline_ms / 1000 - time.time()) as limit:
                return False, await awaitable
        except TimeoutError:
            if limit.expired():
                return True, None
            raise

    return asyncio.run(wait())


class _Loop:
    def __init__(self, function, wire, requests):
        self._function = function
        self._wire = wire
        self._requests = requests
        self._calls = {}
        self._loop = asyncio.new_event_loop()
        self._cleanup = Cleanup(function, self._loop)
        asyncio.set_event_loop(self._loop)

    def serve(self, ready):
        self._loop.add_reader(FD, self._read)
        for id, content in ready:
            self._begin(id, content)
        while not self._loop.is_closed():
            try:
                self._loop.run_forever()
            except BaseException as error:
                # SystemExit and KeyboardInterrupt of a task that the function started, or of its signal handler.
                token = CALL.set(owner_of_raised(error) or self._wire.instance)
                print_error(error)
                CALL.reset(token)
        os._exit(1)  # The function closed the loop.

    def _read(self):
        for id, content in self._requests.read():
            self._begin(id, content)

    def _begin(self, id, content):
        call = self._calls[id] = Call(id, is_sole=self._function.concurrency == 1)
        call.undo = None
        call.is_late = False
        try:
            head, body = split(content)
            call.invocation_id = head["invocation_id"]
            if self._function.concurrency == 1:
                self._wire.sole = call
                if "environment" in head:
                    call.undo = swap(head["environment"])
            context = self._function.context.copy()
            context.run(CALL.set, call)
            late_s = max(0, head["deadline_ms"] / 1000 - time.time())
            call.timer = self._loop.call_later(late_s, self._expire, call)
            call.task = self._loop.create_task(self._run(call, head, body), context=context)
        except BaseException as error:
            self._wire.answer(call, *failure(call, error))
            del self._calls[id]

    async def _run(self, call, head, body):
        try:
            result = await self._function.handler(payload_of(body), Context(self._function, head))
            answer = RETURNED, result_of(result)
        except BaseException as error:
            answer = failure(call, error) if call.is_open and not call.is_late else (TIMED_OUT,)
        if call.is_late:
            answer = (TIMED_OUT,)
        call.timer.cancel()
        del self._calls[call.id]
        if self._wire.sole is call:
            self._wire.sole = self._wire.instance
        if call.undo is not None:
            restore(call.undo)
        self._wire.answer(call, *answer)
        if not self._calls:
            self._cleanup.run(call.task)
        call.task = None  # Its context has the call: without this, both would wait for the collector.

    def _expire(self, call):
        """Cancels a late call, and answers it when it has ended, or soon. What it prints meanwhile is in its record."""
        call.is_late = True
        call.timer = self._loop.call_later(_LAST_WORDS_S, self._wire.answer, call, TIMED_OUT)
        call.task.cancel()
