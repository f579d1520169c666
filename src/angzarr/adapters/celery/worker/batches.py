"""BatchGatherer: gathers requests of batch handlers, and gives each batch to the pool as one job.

A batch goes when it is full, or when its first request has waited long enough. A message that was
tried, replayed or delivered before runs alone, as does one with followers or a time limit of its
own. Nothing is acknowledged here: each request hears of its own end, as if it had been alone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final
from weakref import ref

from billiard.einfo import ExceptionInfo
from celery.app.trace import fast_trace_task, trace_task_ret
from celery.exceptions import TaskRevokedError
from celery.worker import state

from angzarr.adapters.celery.worker.batch_job import run_batch
from angzarr.adapters.celery.worker.pools import is_lost
from angzarr.adapters.celery.worker.queue_pauser import handlers_of_queues
from angzarr.adapters.celery.worker.runtime import runtime_of
from angzarr.delivery.delivery import attempt_of, position_of
from angzarr.delivery.handlers import Handler, Handlers
from angzarr.payloads.claim_check import may_be_followed

_log = logging.getLogger("angzarr.worker")

#: The most that AMQP can be told as a prefetch limit; kombu takes more for no limit.
MOST_PREFETCHED: Final = 0xFFFF


def largest_batch(handlers: Iterable[Handler]) -> int:
    """The most events that a handler takes in one call; 0: none takes batches."""
    return max((handler.batch.size for handler in handlers if handler.batch is not None), default=0)


def prefetch_multiplier(given: int, largest: int, processes: int) -> int:
    """The multiplier by which each process has a batch that runs and one that is gathered."""
    if not given or not largest:  # 0: there is no limit
        return given
    return max(given, min(2 * largest, MOST_PREFETCHED // max(processes, 1)))


def gather_batches(consumer: Any) -> BatchGatherer | None:
    """Let *consumer* gather for its app's batch handlers; None: the app has none.

    It fetches more only if it consumes from a queue of such a handler.
    """
    app = consumer.app
    handlers = runtime_of(app).handlers
    if not largest_batch(handlers):
        return None
    consumed, served = app.amqp.queues.consume_from, handlers_of_queues(app)
    largest = largest_batch(one for queue in consumed for one in served.get(queue, ()))
    if given := consumer.prefetch_multiplier:
        processes = consumer.initial_prefetch_count // given
        consumer.prefetch_multiplier = prefetch_multiplier(given, largest, processes)
        consumer.initial_prefetch_count = processes * consumer.prefetch_multiplier

    def later(seconds: float, flush: Callable[[], object]) -> None:
        if consumer.hub is None and not getattr(consumer.pool, "is_green", False):
            flush = partial(consumer.call_soon, flush)  # the timer has a thread of its own
        consumer.timer.call_after(seconds, flush)

    def is_full() -> bool:
        limit = consumer.qos.value if consumer.qos is not None else 0
        return 0 < limit <= len(state.reserved_requests)

    gatherer = BatchGatherer(handlers, consumer.on_task_request, later, is_full)
    consumer.on_task_request = gatherer
    return gatherer


class BatchGatherer:
    """Stands before *hand_over*, which gives a request to the pool, in one consumer.

    *later* calls a function after some seconds, where `hand_over` may be called. *is_full* says
    whether the broker sends no more until something is acknowledged: then nothing waits.
    """

    def __init__(
        self,
        handlers: Handlers,
        hand_over: Callable[[Any], object],
        later: Callable[[float, Callable[[], object]], object],
        is_full: Callable[[], bool] = lambda: False,
    ) -> None:
        self._handlers = handlers
        self._hand_over = hand_over
        self.later = later
        self._is_full = is_full
        self._gathered: dict[str, list[Any]] = {}
        #: Counts the batches of each handler, so that a wait ends only its own.
        self._numbers: dict[str, int] = {}
        self._lock = threading.Lock()

    def __call__(self, request: Any) -> None:
        """Gather *request*, or hand it over alone."""
        handler = self._handlers.get(request.name)
        if handler is None or handler.batch is None or _runs_alone(request):
            self._hand_over(request)
            return
        with self._lock:
            gathered = self._gathered.setdefault(request.name, [])
            gathered.append(request)
            count, number = len(gathered), self._numbers.setdefault(request.name, 0)
        if count >= handler.batch.size:
            self.flush(request.name, number)
        elif self._is_full():
            self.flush_all()
        elif count == 1:
            self.later(handler.batch.wait, partial(self.flush, request.name, number))

    def flush(self, name: str, number: int) -> None:
        """Hand over what is gathered for the handler *name*, unless batch *number* has gone."""
        with self._lock:
            if self._numbers.get(name) != number:
                return
            self._numbers[name] = number + 1
            gathered = self._gathered.pop(name, [])
        left = [request for request in gathered if not request.acknowledged]
        if len(left) == 1:
            self._hand_over(left[0])
        elif left:
            self._hand_over(BatchRequest(left, self._hand_over))

    def flush_all(self) -> None:
        """Hand over all that is gathered."""
        for name, number in list(self._numbers.items()):
            self.flush(name, number)

    def forget(self) -> list[Any]:
        """Forget what is gathered, which its broker gives to others; return it."""
        with self._lock:
            gone = [request for gathered in self._gathered.values() for request in gathered]
            self._gathered.clear()
            for name in self._numbers:
                self._numbers[name] += 1
        return gone


def _runs_alone(request: Any) -> bool:
    """True if *request* may harm others of a batch, or wants what a batch does not give."""
    said = request.request_dict
    if request.delivery_info.get("redelivered") or attempt_of(said) > 1:
        return True
    if position_of(said).replay or any(request.time_limits) or request.expires:
        return True
    if may_be_followed(said):
        return True
    return any(request.embedded.get(name) for name in ("callbacks", "chain", "chord"))


class BatchRequest:
    """Several requests of one handler, which the pool runs as one job."""

    def __init__(self, requests: list[Any], hand_over: Callable[[Any], object]) -> None:
        self._requests = requests
        self._hand_over = hand_over
        self.id = f"batch:{requests[0].id}"
        self._result: Any = None

    def execute_using_pool(self, pool: Any, **_options: Any) -> Any:
        """Run them in *pool*; raises TaskRevokedError if nothing is left to run.

        What cannot go to a child together goes alone: each request knows what to do then.
        """
        self._requests = [one for one in self._requests if self._may_run(one, pool)]
        if not self._requests:
            raise TaskRevokedError(self.id)
        first = self._requests[0]
        for request in self._requests:
            request.batch = self.id
        fast = first.app.use_fast_trace_task
        try:
            result = self._result = pool.apply_async(
                run_batch,
                args=(
                    fast_trace_task if fast else trace_task_ret,
                    first.name,
                    [request.call for request in self._requests],
                ),
                accept_callback=self._tell_all("on_accepted"),
                timeout_callback=self._tell_all("on_timeout"),
                callback=self._on_done,
                error_callback=self._tell_all("on_failure"),
                soft_timeout=first.task.soft_time_limit,
                timeout=first.task.time_limit,
                correlation_id=self.id,
            )
        except Exception as error:
            if is_lost(error):
                raise
            self._go_alone(pool, error)
            raise TaskRevokedError(self.id) from error  # Celery frees its slot
        if result is not None:
            for request in self._requests:
                request.keep_result(ref(result))
        return result

    @staticmethod
    def _may_run(request: Any, pool: Any) -> bool:
        """False if *request* has its end; one that fails here goes back, and keeps no other."""
        try:
            return not (request.acknowledged or request.revoked())
        except Exception as error:  # noqa: BLE001 - the broker of events is away, for one
            request.fail_to_begin(pool, error)
            return False

    def _go_alone(self, pool: Any, error: Exception) -> None:
        for request in self._requests:
            if request.time_start is not None or request.acknowledged:  # solo: it has begun
                request.fail_to_begin(pool, error)
        waiting = [one for one in self._requests if one.time_start is None and not one.acknowledged]
        if not waiting:
            return
        _log.warning("batch_not_sent: its %d events run one by one: %r", len(waiting), error)
        waiting[0].discard_job(pool)
        for request in waiting:
            request.batch = None
        _each(waiting, self._hand_over)

    def _tell_all(self, name: str) -> Callable[..., None]:
        """A callback that tells each request."""

        def tell(*how: Any, **said: Any) -> None:
            _each(self._requests, lambda request: getattr(request, name)(*how, **said))

        return tell

    def _on_done(self, told: Any, **said: Any) -> None:
        """Tell each request its own end."""
        if isinstance(told, ExceptionInfo):  # a solo pool says so of what would end its process
            self._tell_all("on_failure")(told)
            return
        _failed, ends, _took = told
        each = zip(self._requests, ends, strict=True)
        _each(each, lambda one: one[0].on_success(one[1], **said))


def _each(what: Iterable[Any], do: Callable[[Any], object]) -> None:
    """Call *do* with each of *what*; the first error is raised once all had their turn."""
    first: Exception | None = None
    for one in what:
        try:
            do(one)
        except Exception as error:  # noqa: BLE001 - raised below
            first = first or error
    if first is not None:
        raise first
