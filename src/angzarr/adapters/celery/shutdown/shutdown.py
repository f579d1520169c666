"""Ends a worker within its grace, losing nothing and running nothing twice.

The order: stop consuming; give back what has not begun; let running tasks finish until the grace
(``worker_soft_shutdown_timeout``) ends; cut the rest, free its claims with no start counted, and
give its messages back; end the settle thread; send acknowledgements; end the pool. Then Celery
closes the connection, and the owner lease ends with the process.

Celery waits for the pool first, however long that takes, and frees prefetched messages only when
its connection closes (docs/adr/0014). Celery also installs its signal handlers before its steps.
They print, send signals and set the flags that end its loop, so ours call them. Only Celery's
``on_cold_shutdown`` is left out: it sleeps inside the signal handler and reads no results.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any

from billiard.process import current_process
from celery import bootsteps, platforms, signals
from celery.apps import worker as program
from celery.apps.worker import Worker
from celery.concurrency.asynpool import AsynPool
from celery.exceptions import WorkerShutdown
from celery.worker import state

from angzarr.adapters.celery.claim_batch import release_claims
from angzarr.adapters.celery.shutdown.pool_shutdown import (
    POOL_SHUTDOWNS,
    DrainLoop,
    PoolShutdown,
    running,
)
from angzarr.adapters.celery.worker.pools import (
    keep_sent,
    outlive_failed_forks,
    pass_by_ending,
    spare_begun,
    steady,
    watch_living,
)
from angzarr.adapters.celery.worker.runtime import runtime_of
from angzarr.adapters.celery.worker.settlement import (
    give_back_messages,
    give_back_requests,
    unbegun,
)
from angzarr.adapters.celery.worker.supervised import SupervisedProcess
from angzarr.adapters.celery.worker.time_limits import WAKE
from angzarr.adapters.celery.worker.worker import Stopping, pool_name
from angzarr.delivery.async_runner import INTERRUPTER, begin_shared

_log = logging.getLogger("angzarr.worker")

#: Seconds after the grace by which the process has ended, whatever does not answer.
END_WITHIN = 2.3
#: Seconds that the settle thread gets for what is due: claims of the dead, letters half written.
SETTLED_WITHIN = 0.5


class ShutdownStep(bootsteps.StartStopStep):
    """Puts `Shutdown` where a worker tells its consumer to close, before all else it does."""

    requires = ()

    _shutdown: Shutdown | None = None

    def start(self, worker: Any) -> None:
        """Take over the end of this worker; it is not consuming yet, and nothing runs."""
        if pool_name(worker) == "threads":
            runtime_of(worker.app).movement.threads = steady(worker.pool)
            if any(handler.is_async for handler in runtime_of(worker.app).handlers):
                begin_shared()  # later there may be no thread to be had
        elif pool_name(worker) == "coroutines":
            runtime_of(worker.app).movement.threads = worker.pool.executor
        shutdown = self._shutdown = Shutdown(worker)
        worker.consumer.close = shutdown.run
        if shutdown.owns_process:
            supervised = runtime_of(worker.app).supervised
            if supervised is not None and worker.hub is not None:
                supervised.measure(worker.hub)
            install_handlers(worker, shutdown, supervised)
            threading.Thread(target=shutdown.watch, name="angzarr-watchdog", daemon=True).start()

    def stop(self, worker: Any) -> None:
        """End what the worker of another program began; of all steps this one stops last.

        A worker that is a process of its own keeps its lease until it exits.
        """
        if self._shutdown is not None and not self._shutdown.owns_process:
            runtime_of(worker.app).end_work()

    def terminate(self, worker: Any) -> None:
        """Do the same; a worker that must hurry is not stopped but terminated."""
        self.stop(worker)

    def register_with_event_loop(self, worker: Any, _hub: Any) -> None:
        """Fix how Celery's pool treats children that work or have died; it runs by now."""
        if isinstance(billiard := getattr(worker.pool, "_pool", None), AsynPool):
            spare_begun(billiard)
            pass_by_ending(billiard)
            watch_living(billiard)
            outlive_failed_forks(billiard)
            keep_sent(worker.pool)


class Shutdown:
    """One worker's way out."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._app = worker.app
        self._drain_loop = DrainLoop(worker)
        self._pool = POOL_SHUTDOWNS.get(pool_name(worker), PoolShutdown)(worker, self._drain_loop)
        self._is_asked = False
        #: Wakes the watchdog; unlike an Event it may be used by a signal handler at any point.
        self._asked: SimpleQueue[None] = SimpleQueue()
        self._begun = False
        self._deadline = 0.0
        #: Whether this process is a worker and nothing else, and may be ended.
        self.owns_process = isinstance(worker, Worker) and _on_main_thread()

    # -- what signals say ----------------------------------------------------------------------

    def ask(self) -> bool:
        """Begin the grace; True the first time."""
        grace = float(self._app.conf.worker_soft_shutdown_timeout)
        return self._begin(time.monotonic() + grace)

    def drain(self) -> None:
        """Begin nothing more, and let what runs end, however long that takes."""
        if self._begin(float("inf")):
            runtime_of(self._app).stopping.close()
            state.should_stop = os.EX_OK

    def end_now(self) -> None:
        """Begin with a grace that is over; from any thread."""
        self.ask()
        self._deadline = min(self._deadline, time.monotonic())
        state.should_stop = os.EX_OK

    @property
    def is_overdue(self) -> bool:
        """True once the grace is over."""
        return self._is_asked and time.monotonic() >= self._deadline

    def _begin(self, deadline: float) -> bool:
        if self._is_asked:
            self._deadline = min(self._deadline, deadline)
            return False
        self._is_asked, self._deadline = True, deadline
        runtime_of(self._app).stopping.begin()
        self._asked.put(None)
        return True

    def hurry(self) -> None:
        """End the grace now; raises Cut in a handler that runs on this very thread (solo)."""
        self._deadline = min(self._deadline, time.monotonic())
        if INTERRUPTER.inside:
            runtime_of(self._app).stopping.cut()
            INTERRUPTER.interrupt()

    def watch(self) -> None:
        """Keep the time, from a thread of its own: the main one may run a handler, or hang."""
        self._asked.get()
        self._sleep_until(0)
        main = threading.main_thread().ident
        if INTERRUPTER.inside and main is not None:
            signal.pthread_kill(main, signal.SIGTERM)  # our own handler calls `hurry` there
        self._sleep_until(END_WITHIN)
        _log.critical("shutdown_overdue: what does not answer is left; its messages come back")
        self._pool.kill()
        _exit(os.EX_SOFTWARE)

    def _sleep_until(self, after: float) -> None:
        while (left := self._deadline + after - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))  # the deadline may come nearer

    # -- the way out ---------------------------------------------------------------------------

    def run(self) -> None:
        """Do everything but closing the connection; whatever breaks, Celery's own way goes on."""
        if self._begun:
            return
        self._begun = True
        supervised = runtime_of(self._app).supervised
        by_remote_control = isinstance(sys.exc_info()[1], WorkerShutdown) and not self._is_asked
        if supervised is not None and by_remote_control:
            supervised.leave("remote control")
        self.ask()
        if state.should_terminate is not None and state.should_terminate is not False:
            self._deadline = time.monotonic()
        try:
            with self._drain_loop:
                self._take_steps()
        except Exception:  # noqa: BLE001 - the process must end; what is unacknowledged comes back
            _log.exception("shutdown_broke")

    def _take_steps(self) -> None:
        late = self._stop_consuming()
        runtime_of(self._app).stopping.close()
        self._pool.begin_no_more()
        release_claims(self._app, late)
        give_back_messages(late)
        back = len(late) + give_back_requests(self._app, unbegun(self._worker.consumer))
        left = max(0.0, self._deadline - time.monotonic())
        most = "as long as they take" if left == float("inf") else f"for {left:.1f} s at most"
        _log.info("stopping: %d tasks run %s, %d given back", len(running()), most, back)
        if not self._drain_loop.until(lambda: not running(), lambda: self._deadline):
            _log.warning("grace_ended: %d tasks are cut, they run again elsewhere", len(running()))
            runtime_of(self._app).stopping.cut()
            self._pool.cut()
        runtime_of(self._app).stop_settling(SETTLED_WITHIN)
        self._drain_loop.settle()
        self._pool.end()
        if self._pool.leaves_running and self.owns_process:
            self._leave_when_stopped()

    def _stop_consuming(self) -> list[Any]:
        """Cancel the consumer for good; return the messages that came until the broker knew."""
        consumer = self._worker.consumer
        tasks, late = consumer.task_consumer, []  # type: Any, list[Any]
        if consumer.connection is None or tasks is None:
            return late
        tasks.on_message = late.append
        tasks.consume = _nothing  # remote control, or a domain let go, would resume it
        try:
            tasks.cancel()
        except Exception as error:  # noqa: BLE001 - the broker is away, and so sends nothing
            _log.warning("consumer_not_cancelled: %r", error)
        tasks.on_message = _give_back_at_once
        return late

    def _leave_when_stopped(self) -> None:
        """Let Celery close everything but its pool, then end: Python would wait for its threads."""
        self._worker.pool.on_stop = _nothing
        blueprint = self._worker.blueprint
        stopped = blueprint.on_stopped

        def leave() -> None:
            try:
                stopped()
                signals.worker_shutdown.send(sender=self._worker)
                atexit._run_exitfuncs()  # noqa: SLF001 - facts, telemetry, the owner lease
            finally:
                _exit(self._worker.exitcode or os.EX_OK)

        blueprint.on_stopped = leave


def _exit(code: int) -> None:
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _give_back_at_once(message: Any) -> None:
    give_back_messages([message])


def _nothing(*_args: Any, **_options: Any) -> None:
    """Stand in for what must not be done any more."""


def _on_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


#: How long a child that got a signal waits for its parent's word that all of them did (seconds).
WORD_WITHIN = 0.1

_AGAIN = "worker: finishing what runs; the same signal again cuts it short"


def install_handlers(
    worker: Any, asked: Shutdown, supervised: SupervisedProcess | None = None
) -> None:
    """Take over from Celery's handlers; the worker's main thread must call it.

    A *supervised* process drains on SIGHUP, and a second SIGTERM does not cut its grace short: a
    service manager may signal all processes, as their supervisor does.
    """
    warm = partial(program.install_worker_term_handler, worker, sig="SIGTERM", how="Warm")
    cuts = supervised is None
    _around("SIGTERM", partial(warm, callback=None, exitcode=os.EX_OK), asked, again_cuts=cuts)
    warmly = partial(program.install_worker_int_handler, worker, callback=_say if cuts else None)
    _around("SIGINT", warmly, asked, again_cuts=cuts)
    cold = partial(program.install_worker_term_hard_handler, worker, callback=_no_cold_shutdown)
    _around("SIGQUIT", cold, asked, at_once=True)
    if supervised is not None:
        platforms.signals["SIGHUP"] = lambda _number, _frame: asked.drain()
        signal.signal(WAKE, INTERRUPTER.heed)
        supervised.cut = asked.end_now


def _around(
    name: str,
    install_celerys: Callable[[], object],
    asked: Shutdown,
    *,
    at_once: bool = False,
    again_cuts: bool = True,
) -> None:
    install_celerys()
    celerys: Any = signal.getsignal(platforms.signals.signum(name))

    def handler(number: int, frame: Any) -> None:
        first = asked.ask()
        if first or at_once:
            celerys(number, frame)
        if at_once or (not first and (again_cuts or asked.is_overdue)):
            asked.hurry()

    handler.__name__ = f"angzarr_{name.lower()}"
    platforms.signals[name] = handler


def _say(_worker: Any) -> None:
    program.safe_say(_AGAIN)


def _no_cold_shutdown(_worker: Any) -> None:
    """Stand in for ``on_cold_shutdown``."""


def heed_cut(stopping: Stopping) -> None:
    """Let SIGTERM cut the handler of this prefork child once its worker's grace has ended.

    Before that it means what it meant: billiard ends a child by it. But where the whole worker
    stops, as when a service manager signals all its processes, the parent decides.
    """
    if current_process().name == "MainProcess":
        return
    before = signal.getsignal(signal.SIGTERM)

    def on_term(number: int, frame: Any) -> None:
        if not stopping():
            time.sleep(WORD_WITHIN)
        if stopping.cutting:
            INTERRUPTER.interrupt()
        elif not stopping():  # else the parent says when this process ends
            _go_on(before, number, frame)

    def restore(**_signal: Any) -> None:
        platforms.signals["SIGTERM"] = before

    platforms.signals["SIGTERM"] = on_term
    # From here on billiard's parent ends it by SIGTERM as soon as it has said its last word.
    signals.worker_process_shutdown.connect(restore, weak=False)


def _go_on(before: Any, number: int, frame: Any) -> None:
    if callable(before):
        before(number, frame)
    elif before == signal.SIG_DFL:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
