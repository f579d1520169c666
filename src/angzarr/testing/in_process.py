"""A Celery worker without its own loop: a test steps it by hand, and an alarm ends what hangs.

The alarm uses the signal of pytest-timeout's `signal` method; that timer is kept and runs on.
"""

from __future__ import annotations

import _weakrefset
import asyncio
import signal
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final

from celery import _state
from celery.concurrency.base import apply_target
from celery.exceptions import WorkerShutdown, WorkerTerminate
from celery.worker import state

from angzarr.adapters.celery.memory_transport import MemoryBroker
from angzarr.app.angzarr import Angzarr
from angzarr.dead_letters.replay_outcome import outcomes_queue
from angzarr.errors import ConfigurationError


class InProcess:
    """One worker of *app*, which is staged on *broker*."""

    def __init__(self, app: Angzarr, broker: MemoryBroker) -> None:
        self._app = app
        self._runtime = app._runtime  # noqa: SLF001 - a test's worker is moved by hand
        self._broker = broker
        #: What a handler raised that is no Exception: the test's own, or an order to end.
        self.broken_by: BaseException | None = None
        self._worker: Any = None

    @contextmanager
    def open(self) -> Iterator[None]:
        """Start it and, when the block is left, stop it; raises ConfigurationError as a worker."""
        may_not_join = _state.task_join_will_block()
        self._runtime.turns_by_hand = True
        self._worker = worker = self._app.WorkController(
            hostname="angzarr-testing@in-process",
            pool="solo",
            concurrency=1,
            queues=sorted(self._queues()),
            without_heartbeat=True,
            without_mingle=True,
            without_gossip=True,
            quiet=True,
        )
        consumer = worker.consumer
        consumer.loop = _begin
        consumer.start = partial(consumer.blueprint.start, consumer)
        if consumer.batches is not None:
            consumer.batches.later = _wait_for_others
        worker.pool.on_apply = self._apply
        worker.timer.call_at = self._at_once
        worker.start()
        # Celery's worker forbids `result.get()` in its whole process, in which the test runs too.
        _state._set_task_join_will_block(may_not_join)  # noqa: SLF001 - Celery's own does the same
        if (code := worker.exitcode) is not None:
            msg = f"the worker did not start (exit code {code}): its last log line says why"
            raise ConfigurationError(msg)
        try:
            yield
        finally:
            self._stop()

    def _queues(self) -> set[str]:
        answers = outcomes_queue(self._app.settings.prefix)
        return set(self._app.ops.replay_targets().queues) - {answers}

    def _stop(self) -> None:
        self._runtime.stopping.close()
        try:
            self._worker.stop()
        finally:
            self._runtime.end_work()
            state.should_stop = state.should_terminate = None
            state.reset_state()

    def step(self) -> bool:
        """Take one message, if there is one, and every turn; return True if there may be more.

        Raises what a handler raised that is not an Exception: its message goes back.
        """
        with _current(self._app):
            self._runtime.take_turns()
            taken = self._take()
            if not taken and (batches := self._worker.consumer.batches) is not None:
                batches.flush_all()
                self._worker.consumer.perform_pending_operations()
        if (broken := self.broken_by) is not None:
            self.broken_by = None
            raise broken
        return taken or self._waiting() > 0 or self._in_hand() > 0 or self.settles

    @property
    def settles(self) -> bool:
        """Whether something is to be settled that no child will."""
        return self._runtime.settles

    def _take(self) -> bool:
        consumer = self._worker.consumer
        consumer.perform_pending_operations()
        try:
            consumer.connection.drain_events(timeout=0)
        except TimeoutError:
            return False
        finally:
            consumer.perform_pending_operations()
        return True

    def renew(self) -> None:
        """Keep the worker's lease, which a leap of time has ended."""
        self._app._parts.tenure.renew(self._runtime.owner)  # noqa: SLF001 - its own lease

    def _waiting(self) -> int:
        mine = {queue.name for queue in self._app.amqp.queues.consume_from.values()}
        return sum(kept.qsize() for name, kept in self._broker.queues.items() if name in mine)

    def _in_hand(self) -> int:
        """The number of messages that were taken and neither acknowledged nor given back."""
        qos = self._worker.consumer.task_consumer.channel.qos
        return len(qos._delivered) - len(qos._dirty)  # noqa: SLF001 - kombu counts them nowhere else

    def _apply(self, target: Callable[..., Any], *args: Any, **options: Any) -> None:
        """Run a task on this thread, as the solo pool does, and note what would end its worker."""

        def watched(*given: Any, **named: Any) -> Any:
            try:
                told = target(*given, **named)
            except (Exception, WorkerShutdown, WorkerTerminate):
                raise
            except BaseException as error:
                self.broken_by = error
                raise
            self.broken_by = self.broken_by or _given_back_for(told)
            return told

        apply_target(watched, *args, **options)

    def _at_once(
        self, _at: float, run: Callable[..., Any], args: Any = (), **_priority: Any
    ) -> None:
        """Run what Celery's timer was to: it came here because its time has come by our clock."""
        self._worker.consumer.call_soon(run, *args)


def _given_back_for(told: Any) -> BaseException | None:
    """The error that ended a task outside the main thread, if its message is given back for it."""
    exception = getattr(told[1], "exception", None)
    reason = getattr(getattr(exception, "exc", exception), "reason", None)
    ends = isinstance(reason, BaseException) and not isinstance(reason, Exception)
    return reason if ends else None


@contextmanager
def _current(app: Angzarr) -> Iterator[None]:
    """Let *app* be Celery's current one on this thread, by which a task finds its own."""
    before = _state.get_current_app()
    app.set_current()
    try:
        yield
    finally:
        _state._set_current_app(before)  # noqa: SLF001 - Celery has no other way back


def _begin(consumer: Any, _connection: Any, tasks: Any, *_others: Any) -> None:
    """Begin as Celery's loops do, and return before the first turn."""
    tasks.on_message = consumer.create_task_handler()
    tasks.consume()
    consumer.on_ready()


def _wait_for_others(_seconds: float, _flush: Callable[[], object]) -> None:
    """Wait until no message is left, in place of a time: `step` hands a batch over then."""


def on_main_thread() -> bool:
    """True if this is the thread that signals interrupt."""
    return threading.current_thread() is threading.main_thread()


#: Whose code is not what somebody looks for who wants to know where a handler hangs.
_OURS: Final = ("angzarr", "celery", "kombu", "billiard")
_SHORTEST: Final = 0.001
#: The modules of weak references' callbacks, in which Python drops whatever is raised.
_CALLBACKS: Final = (_weakrefset.__file__, weakref.__file__)
#: Seconds after which the alarm rings again, where what it raised would be dropped.
_AGAIN: Final = 0.05


class Hangs(BaseException):
    """Raised in what hangs; no handler catches it by ``except Exception``."""

    def __init__(self, told: str) -> None:
        super().__init__(told)
        self.told = told


@contextmanager
def alarm(seconds: float, tell: Callable[[str], str]) -> Iterator[None]:
    """Raise `Hangs` in this thread, which must be the main one, if the block takes longer.

    *tell* says what hangs, given where in the user's code.
    """
    before: Any = signal.getsignal(signal.SIGALRM)
    begun = time.monotonic()
    left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    theirs_first = 0 < left <= seconds

    def ring(number: int, frame: FrameType | None) -> None:
        nonlocal left, theirs_first
        if theirs_first:
            theirs_first, left = False, 0.0  # it rings once
            if callable(before):
                before(number, frame)
        if _drops_errors(frame):
            signal.setitimer(signal.ITIMER_REAL, _AGAIN)
            return
        raise Hangs(tell(where(frame)))

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, left if theirs_first else max(seconds, _SHORTEST))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left:
            passed = time.monotonic() - begun
            signal.setitimer(signal.ITIMER_REAL, max(left - passed, _SHORTEST))


def _drops_errors(frame: FrameType | None) -> bool:
    """True in a finalizer or a weak reference's callback: what is raised there is dropped."""
    if frame is None:
        return False
    return frame.f_code.co_name == "__del__" or frame.f_code.co_filename in _CALLBACKS


def where(frame: FrameType | None) -> str:
    """The line of the user's code that *frame* is at or was called by, the innermost.

    Where this thread only waits for coroutines, that is the line at which one of them waits.
    """
    stack = [*traceback.extract_stack(frame), *_awaited()]
    for line in reversed(stack):
        parts = Path(line.filename).parts
        named = not line.filename.startswith("<")
        if named and "lib" not in parts and not set(_OURS) & set(parts):
            return f"{line.filename}:{line.lineno} in {line.name}"
    return f"{stack[-1].filename}:{stack[-1].lineno} in {stack[-1].name}"


def _awaited() -> list[traceback.FrameSummary]:
    """The place where this thread's loop waits: the longest chain of coroutines that await another.

    Nothing where no loop runs here, and where one of its coroutines does: the stack tells that.
    """
    try:
        if asyncio.current_task() is not None:
            return []
        tasks = asyncio.all_tasks()
    except RuntimeError:  # no loop
        return []
    return max((_chain(one.get_coro()) for one in tasks), key=len, default=[])


def _chain(awaited: Any) -> list[traceback.FrameSummary]:
    lines = []
    while (frame := getattr(awaited, "cr_frame", None)) is not None:
        lines += traceback.extract_stack(frame)[-1:]
        awaited = awaited.cr_await
    return lines
