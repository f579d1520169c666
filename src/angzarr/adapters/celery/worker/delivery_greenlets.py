"""DeliveryGreenlets: many deliveries on the thread of one event loop, each in a greenlet.

A delivery takes its steps one after the other as everywhere. While it waits, for its handler's
coroutine, for a server or for the time, its greenlet gives the thread to the others. Calls that
block go to a few threads of their own (`call_blocking`). No lock may be held over such a wait.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context, copy_context
from typing import Any, Final, TypeVar

from greenlet import getcurrent, greenlet

from angzarr.adapters.celery.worker.pools import SteadyExecutor
from angzarr.delivery.async_runner import Interrupt
from angzarr.delivery.context import RUNNING
from angzarr.runtime.cooperative import RUN

_log = logging.getLogger("angzarr.worker")

T = TypeVar("T")

#: Seconds that a cancelled coroutine has to end, before its delivery leaves it behind.
CANCELLED_WITHIN: Final = 1.0


class DeliveryGreenlets:
    """Runs at most *most* at once; the others wait in line. `begin` is safe from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callers: SteadyExecutor, most: int) -> None:
        self._loop = loop
        self._callers = callers
        self._most = most
        self._line: deque[DeliveryGreenlet] = deque()
        self._lock = threading.Lock()
        self._is_woken = self._is_closed = False
        #: Those that have begun. Nothing else may refer to one whose coroutine waits for ever.
        self._running: set[DeliveryGreenlet] = set()
        #: What this turn of the loop has gathered, by who takes it; who is told of ends, and what.
        self._gathered: dict[Callable[[list[Any]], object], list[Any]] = {}
        self._ends: list[tuple[Callable[[Any], object], Any]] = []
        self._turn_ends = False
        #: Greenlets that run nothing. To make one, with memory for its frames, takes ten times as
        #: long as all switches of a delivery.
        self._idle: list[greenlet] = []
        #: What the greenlet runs that is switched to next.
        self._begun: DeliveryGreenlet | None = None
        #: The thread whose turns wake the loop up; None: each that is begun does.
        self._fed_by: int | None = None

    def begin(self, name: str, work: Callable[[DeliveryGreenlet], object]) -> DeliveryGreenlet:
        """Put *work* in line; *name* says to people what it is. Nothing that it raises matters."""
        put = DeliveryGreenlet(name, work, self._loop, self._callers, self)
        with self._lock:
            self._line.append(put)
        if self._fed_by != threading.get_ident():
            self.wake()
        return put

    def feed(self, hub: Any) -> None:
        """Wake the loop up once in each turn of *hub*, on whose thread this is called."""
        self._fed_by = threading.get_ident()
        hub.on_tick.add(self.wake)

    def wake(self) -> None:
        """Let the loop take up what is in line."""
        if self._line and not self._is_woken:
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._begin_next)

    def gather(self, to: Callable[[list[Any]], object], items: Sequence[Any]) -> None:
        """Call *to* with all *items* of this turn of the loop, before any end is told."""
        self._gathered.setdefault(to, []).extend(items)
        self._end_turn_soon()

    def tell(self, heard: Callable[[Any], object], end: Any) -> None:
        """Call *heard* with the *end* of a delivery, together with others of this turn."""
        self._ends.append((heard, end))
        self._end_turn_soon()

    def close(self) -> None:
        """Begin nothing more; what is in line is forgotten."""
        with self._lock:
            self._is_closed = True
            self._line.clear()

    def _end_turn_soon(self) -> None:
        if not self._turn_ends:
            self._turn_ends = True
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        """Hand over what was gathered, then tell all ends; their places go to the next in line."""
        self._turn_ends = False
        gathered, self._gathered = self._gathered, {}
        ends, self._ends = self._ends, []
        for one in self._idle:
            one.gr_context = None  # what its run has left in it may go
        for to, what in (*gathered.items(), *ends):
            try:
                to(what)
            except BaseException:  # noqa: BLE001 - the others are to hear too
                _log.exception("end_not_told")
        self._take_up()

    def _begin_next(self) -> None:
        self._is_woken = False
        self._take_up()

    def _take_up(self) -> None:
        while len(self._running) < self._most:
            with self._lock:
                if self._is_closed or not self._line:
                    return
                begun = self._line.popleft()
            if not begun.has_ended:
                self._running.add(begun)
                begun.run()

    def lend(self, to: DeliveryGreenlet) -> greenlet:
        """A greenlet that runs *to* when it is switched to, which must be at once."""
        self._begun = to
        return self._idle.pop() if self._idle else greenlet(self._carry)

    def leave(self, ended: DeliveryGreenlet) -> None:
        """Let the next one begin: *ended* has, whose own code asks."""
        self._running.discard(ended)
        self._idle.append(getcurrent())  # from its next switch on
        self._end_turn_soon()

    def _carry(self) -> None:
        """Run one delivery after the other, and keep none: what a greenlet does."""
        hub = getcurrent().parent
        while (run := self._begun) is not None:
            self._begun = None
            run.main()
            del run
            hub.switch()


class DeliveryGreenlet:
    """One of them: a `CooperativeRun`; for the loop's thread, where nothing else is said."""

    #: Where it runs, and who runs meanwhile that it waits; once it has begun.
    _greenlet: greenlet
    _hub: greenlet

    def __init__(
        self,
        name: str,
        work: Callable[[DeliveryGreenlet], object],
        loop: asyncio.AbstractEventLoop,
        callers: SteadyExecutor,
        among: DeliveryGreenlets,
    ) -> None:
        self._name = name
        self._work: Callable[[DeliveryGreenlet], object] | None = work
        self._loop = loop
        self._callers = callers
        self._among = among
        self._context = Context()
        #: Whether nothing of it runs any more, or ever will; whether others settle it meanwhile.
        self.has_ended = self._is_void = False
        self.is_struck = True
        self._strike: Callable[[type[Exception]], object] | None = None
        self._task: asyncio.Task[Any] | None = None
        self._is_calling = False
        #: Counts the waits: what wakes it up means one of them.
        self._waits = 0
        #: Whether it has to raise Interrupt, once.
        self._is_cut = False

    @property
    def name(self) -> str:
        """The event and its handler, or what it was begun as; from any thread."""
        delivery = self._context.get(RUNNING)
        return self._name if delivery is None else f"{delivery.handler}, event {delivery.event.id},"

    @property
    def is_here(self) -> bool:
        """True if its own code asks."""
        return getcurrent() is self._greenlet and not self.has_ended

    def run(self) -> None:
        """Begin; returns when it waits for the first time, or has ended."""
        self._hub = getcurrent()
        self._greenlet = self._among.lend(self)
        self._greenlet.gr_context = self._context
        self._greenlet.switch()

    def call(self, blocking: Callable[[], T]) -> T:
        """Call *blocking* in one of the threads for that; see `CooperativeRun`."""
        future = self._callers.submit(self._context.run, blocking)
        number = self._waits + 1
        future.add_done_callback(
            lambda _future: self._loop.call_soon_threadsafe(self._wake, number)
        )
        self._is_calling = True
        try:
            self._wait()
        finally:
            self._is_calling = False
        result: T = future.result()
        return result

    def gather(self, to: Callable[[list[Any]], object], items: Sequence[Any]) -> None:
        """Call *to* with all *items* that deliveries gather in this turn of the loop."""
        self._among.gather(to, items)

    def sleep(self, seconds: float) -> None:
        """Let *seconds* pass."""
        self._loop.call_later(seconds, self._wake, self._waits + 1)
        self._wait()

    def finish(
        self,
        work: Coroutine[Any, Any, T],
        strike: Callable[[type[Exception]], object] | None = None,
    ) -> T:
        """Run *work* to its end; raises CancelledError if it was cancelled.

        A cut raises Interrupt, and may leave *work* behind.
        """
        task = self._loop.create_task(work, context=copy_context())
        number = self._waits + 1
        task.add_done_callback(lambda done: self._take(done, number))
        self._task, self._strike = task, strike
        try:
            self._wait()
        finally:
            self._task = self._strike = None
        return task.result()

    def _take(self, task: asyncio.Task[Any], number: int) -> None:
        if not task.cancelled():
            task.exception()  # asyncio would report one that a cut leaves unread
        self._wake(number)

    def strike(self, error: type[Exception]) -> bool:
        """Raise *error* in its handler's coroutine; False if none runs now; from any thread."""
        strike = self._strike
        if strike is None:
            return False
        strike(error)
        return True

    def cut(self) -> None:
        """End it soon, wherever it waits: it raises Interrupt there; from any thread."""
        self._loop.call_soon_threadsafe(self._cut)

    def tell(self, heard: Callable[[Any], object], end: Any) -> None:
        """Call *heard* with its *end*, together with others of this turn; unless that is void."""
        if not self._is_void:
            self._among.tell(heard, end)

    def cut_for(self, told: Callable[[], object]) -> None:
        """Do as `cut`, and call *told* first, which settles it; from any thread.

        One that has ended stays ended, and *told* is not called. One in line never begins. What
        else it comes to is void.
        """
        self._loop.call_soon_threadsafe(self._cut_for, told)

    def _cut_for(self, told: Callable[[], object]) -> None:
        if self.has_ended:
            return
        self._is_void = True
        told()
        if self._work is not None:  # it is in line
            self._work, self.has_ended = None, True
        else:
            self._cut()

    def _cut(self) -> None:
        if self.has_ended:
            return
        self._is_cut = True
        if self._task is not None:
            self._task.cancel()
            self._loop.call_later(CANCELLED_WITHIN, self._leave_behind, self._task)
        elif not self._is_calling:  # a call's thread uses its context: it ends first
            self._wake(self._waits)

    def _leave_behind(self, task: asyncio.Task[Any]) -> None:
        if self._task is task and not task.done():
            _log.error("coroutine_abandoned: %s ignores its cancellation and runs on", self.name)
            self._wake(self._waits)

    def _wait(self) -> None:
        """Give the thread away until `_wake`; raises Interrupt once it was cut."""
        self._waits += 1
        self._hub.switch()
        if self._is_cut:
            self._is_cut = False
            raise Interrupt

    def _wake(self, number: int) -> None:
        """End wait *number*, unless it has ended."""
        if number == self._waits and not self.has_ended:
            self._waits += 1
            self._greenlet.switch()

    def main(self) -> None:
        """Do its work, in its greenlet."""
        RUN.set(self)
        work, self._work = self._work, None
        try:
            if work is not None:
                work(self)
        except BaseException:  # noqa: BLE001 - it would end the loop of all others
            _log.exception("delivery_broke: %s", self.name)
        finally:
            self.has_ended = True
            RUN.set(None)  # its context refers to it: no cycle is left to collect
            self._among.leave(self)
