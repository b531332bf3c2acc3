"""Serves a sync handler in up to `concurrency` threads. The main thread reads requests and watches deadlines.

T1  `_gate` guards the calls in flight. No call begins while a cleanup runs.
T2  A late call is answered in time. Its thread stays until the process ends, and no cleanup runs any more.
"""
import select
import threading
import time
from _queue import SimpleQueue

from _hearth.cleanup import Cleanup
from _hearth.content import print_error, split
from _hearth.output import CALL
from _hearth.sequential import failure, run
from _hearth.wire import FD, TIMED_OUT, Call


def serve(function, wire, requests, ready):
    _Threads(function, wire).serve(requests, ready)


class _Threads:
    def __init__(self, function, wire):
        self._function = function
        self._wire = wire
        self._cleanup = Cleanup(function)
        self._gate = threading.Lock()
        self._calls = {}
        self._jobs = SimpleQueue()
        self._threads_count = 0
        self._next_ms = float("inf")

    def serve(self, requests, ready):
        poll = select.poll()
        poll.register(FD, select.POLLIN)
        while True:
            try:
                for id, content in ready:
                    self._begin(Call(id), content)
                ready = ()
                if poll.poll(self._wait_ms()):
                    ready = requests.read()
                self._end_late()
            except BaseException as error:
                print_error(error)

    def _begin(self, call, content):
        head, body = split(content)
        call.invocation_id = head["invocation_id"]
        call.deadline_ms = head["deadline_ms"]
        with self._gate:
            self._calls[call.id] = call
            self._next_ms = min(self._next_ms, call.deadline_ms)
            if self._threads_count < min(len(self._calls), self._function.concurrency):
                self._threads_count += 1
                threading.Thread(target=self._work, name=f"calls-{self._threads_count}", daemon=True).start()
        self._jobs.put((call, head, body))

    def _work(self):
        while True:
            call, head, body = self._jobs.get()
            CALL.set(call)
            try:
                context = self._function.context.copy()
                context.run(CALL.set, call)
                status, content = run(self._function, context, head, body)
            except BaseException as error:
                status, content = failure(call, error)
            CALL.set(None)
            head = body = context = None
            with self._gate:
                # A call that comes behind the answer waits for the cleanup.
                self._wire.answer(call, status, content)
                del self._calls[call.id]
                if not self._calls:
                    self._cleanup.run()

    def _wait_ms(self):
        if self._next_ms == float("inf"):
            return None
        return max(0, int(self._next_ms - time.time() * 1000) + 1)

    def _end_late(self):
        now_ms = time.time() * 1000
        if now_ms < self._next_ms:
            return
        with self._gate:
            calls = [call for call in self._calls.values() if call.is_open]
        for call in calls:
            if call.deadline_ms <= now_ms:
                self._wire.answer(call, TIMED_OUT)
        self._next_ms = min((call.deadline_ms for call in calls if call.is_open), default=float("inf"))
