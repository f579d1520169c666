"""InProcessWorker: handles published messages, on the thread of the test, until all is settled.

Nothing waits for real: where all that is left is due later, the clock is moved to it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from datetime import timedelta
from functools import partial
from typing import Any, Final

from angzarr.adapters.celery.memory_transport import memory_broker
from angzarr.adapters.celery.worker.runtime import runtime_of
from angzarr.adapters.memory.schedule import MemorySchedule
from angzarr.app.angzarr import Angzarr
from angzarr.configuration.json_text import canonical
from angzarr.runtime.cooperative import in_event_loop
from angzarr.testing.clock import FakeClock
from angzarr.testing.in_process import Hangs, InProcess, alarm, on_main_thread
from angzarr.testing.settled import Recorder, Settled, WaitingMessage, waiting_of
from angzarr.wiring.configuration import editor_of
from angzarr.wiring.dead_letters import channel_of

#: Seconds of the machine that a run may take, and how much of the clock's time.
TIMEOUT: Final = 30.0
WITHIN: Final = timedelta(days=30)
#: Deliveries of one run; more is a circle.
MOST: Final = 1_000
#: Seconds between two looks at what another thread settles.
_LOOK: Final = 0.001


class NotSettled(AssertionError):
    """Something did not settle; says which event of which handler, and why."""


class InProcessWorker:
    """A worker of *app* in this process; one thread at a time takes its turns."""

    def __init__(
        self, app: Angzarr, clock: FakeClock, engine: InProcess, recorder: Recorder
    ) -> None:
        self.app = app
        self.clock = clock
        self._engine = engine
        self._recorder = recorder
        self._turn = threading.RLock()

    @property
    def settled(self) -> list[Settled]:
        """How every delivery of this test ended so far, oldest first."""
        return self._recorder.all()

    @property
    def waiting(self) -> list[WaitingMessage]:
        """What waits for its time, the earliest first."""
        schedule: Any = runtime_of(self.app).schedule
        rows = schedule.waiting() if isinstance(schedule, MemorySchedule) else []
        return waiting_of(rows, self.settled)

    def waits(self, event_id: str | None = None, handler: str | None = None) -> list[timedelta]:
        """The waits before each retry, of *event_id* and *handler* or of all."""
        return [
            one.delay
            for one in self.settled
            if one.outcome == "retried" and one.delay is not None
            if event_id in (None, one.event_id) and handler in (None, one.handler)
        ]

    def publish(
        self,
        event: object,
        *,
        timeout: float | None = None,
        within: timedelta = WITHIN,
        **said: Any,
    ) -> list[Settled]:
        """Publish *event* as `app.publish` does and return how all of it ended, retries too."""
        self.app.publish(event, **said)
        return self.run_until_settled(timeout=timeout, within=within)

    def put_config(self, id: str, value: object, *, version: str | None = None) -> str:
        """Put *value* as a version of configuration *id*, and return its name; it is current now.

        Raises ConfigurationVersionExists, ConfigurationUnfit.
        """
        with closing(self.app.ops.open_configurations()) as store:
            text = canonical(value)
            put = editor_of(store).put(id, text, version=version, author="test")
        self.app.ops.forget_current_configurations()
        return put.version.version

    def pin_config(self, id: str, version: str) -> None:
        """Make *version* of configuration *id* the current one."""
        with closing(self.app.ops.open_configurations()) as store:
            editor_of(store).choose(id, version, author="test")
        self.app.ops.forget_current_configurations()

    def run_due(self, *, timeout: float | None = None) -> list[Settled]:
        """Handle the messages due now and return how they ended; later ones wait on."""
        return self._run(lambda: False, timeout)

    def run_until_settled(
        self, *, timeout: float | None = None, within: timedelta = WITHIN
    ) -> list[Settled]:
        """Handle everything, whenever it is due, and return how it ended; moves the clock.

        Raises NotSettled if it takes longer than *timeout*, in seconds of the machine, more than
        1,000 deliveries, or longer than *within* by the clock. Without *timeout* it is 30 s.
        """
        until = self.clock.now() + within

        def move_on() -> bool:
            due = self.waiting
            if not due:
                return False
            if due[0].due_at > until:
                msg = f"not settled within {within}: {due[0]}{_and_others(len(due) - 1)}"
                raise NotSettled(msg)
            self.clock.move_to(due[0].due_at)
            self._engine.renew()
            return True

        return self._run(move_on, timeout)

    async def arun_until_settled(
        self,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - of the run, as in `run_until_settled`
        within: timedelta = WITHIN,
    ) -> list[Settled]:
        """Do the same from a coroutine, on a thread of its own; the event loop goes on."""
        return await asyncio.to_thread(self.run_until_settled, timeout=timeout, within=within)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Handle whatever is published while the block runs, on a thread, all of it at once.

        What goes wrong there is raised when the block is left.
        """
        ended, failed = threading.Event(), list[BaseException]()

        def work() -> None:
            while not ended.is_set() and not failed:
                try:
                    self.run_until_settled()
                except BaseException as error:  # noqa: BLE001 - raised by the test's own thread
                    failed.append(error)
                ended.wait(_LOOK)

        thread = threading.Thread(target=work, name="angzarr-testing-worker", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(TIMEOUT)
        if failed:
            raise failed[0]
        if thread.is_alive():
            raise NotSettled(self._what_hangs(TIMEOUT, ""))
        self.run_until_settled()

    def _run(self, move_on: Callable[[], bool], timeout: float | None) -> list[Settled]:
        _refuse_in_a_loop()
        timeout = TIMEOUT if timeout is None else timeout
        with self._my_turn(timeout):
            before = len(self.settled)
            deadline = time.monotonic() + timeout
            try:
                tell = partial(self._what_hangs, timeout)
                with alarm(timeout, tell) if on_main_thread() else nullcontext():
                    self._until_idle(move_on, deadline, before)
            except Hangs as hung:
                raise NotSettled(hung.told or tell("")) from None
            return self.settled[before:]

    @contextmanager
    def _my_turn(self, timeout: float) -> Iterator[None]:
        if not self._turn.acquire(timeout=timeout):
            raise NotSettled(self._what_hangs(timeout, ""))
        try:
            yield
        finally:
            self._turn.release()

    def _until_idle(self, move_on: Callable[[], bool], deadline: float, before: int) -> None:
        while True:
            while self._engine.step() or self._is_due():
                if time.monotonic() > deadline:
                    raise Hangs("")
                if (done := len(self.settled) - before) > MOST:
                    msg = f"{done} deliveries and no end: is there a circle? {self.settled[-1]}"
                    raise NotSettled(msg)
                if self._engine.settles:
                    time.sleep(_LOOK)
            if not move_on():
                return

    def _is_due(self) -> bool:
        due = self.waiting
        return bool(due) and due[0].due_at <= self.clock.now()

    def _what_hangs(self, timeout: float, where: str) -> str:
        running = self._recorder.running
        if running is not None:
            at = f": it is at {where}" if where else ""
            return (
                f"{running.handler} of event {running.event.id!r} ({running.event.type})"
                f" did not return within {timeout:g} s{at}"
            )
        told = [*map(str, self.waiting), f"the worker is at {where or 'an unknown place'}"]
        return f"not settled within {timeout:g} s: {'; '.join(told[:3])}"


def _and_others(count: int) -> str:
    return f", and {count} more wait" if count > 0 else ""


def _refuse_in_a_loop() -> None:
    """Refuse to run coroutines of handlers in a thread whose event loop runs already."""
    if not in_event_loop():
        return
    msg = "an event loop runs on this thread: await arun_until_settled() instead"
    raise RuntimeError(msg)


@contextmanager
def open_in_process(app: Angzarr, clock: FakeClock) -> Iterator[InProcessWorker]:
    """Give a worker of *app*, which is staged; stop it when the block is left."""
    recorder = Recorder()
    context = app.ops.context
    before = context.hooks
    context.substitute(hooks=(*before, recorder))
    engine = InProcess(app, memory_broker(channel_of(app.ops.broker_url)))
    try:
        with engine.open():
            yield InProcessWorker(app, clock, engine, recorder)
    finally:
        context.substitute(hooks=before)
