"""The job of a batch in the process that runs it: settled together, told to Celery one by one."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from billiard.common import terminate_handler_fired
from celery import current_app
from celery.app.task import Context

from angzarr.adapters.celery.envelope import FIELD, SETTLED, delivery_of
from angzarr.adapters.celery.publish.followers import keep_told_retry
from angzarr.adapters.celery.publish.sealed_sends import FOLLOWING
from angzarr.adapters.celery.worker.runtime import runtime_of
from angzarr.adapters.celery.worker.task import ack_follows
from angzarr.adapters.celery.worker.task_request import disown_stacks, own_stacks
from angzarr.delivery.batch_executor import BatchExecutor, SettledDelivery
from angzarr.delivery.delivery import Delivery
from angzarr.errors import GivenBack

_log = logging.getLogger("angzarr.worker")


class PoolCall(NamedTuple):
    """What Celery's trace functions take for one message: its body is decoded."""

    id: str
    request: dict[str, Any]
    body: tuple[Any, Any, Any]


def run_batch(
    trace: Callable[..., Any], name: str, calls: Sequence[tuple[Any, ...]]
) -> tuple[int, list[Any], float]:
    """Handle *calls* of the task *name* as one batch; what *trace* says of each, in order.

    In the form in which Celery's pools expect the end of one task.
    """
    made = [PoolCall(*call) for call in calls]
    try:
        _settle(current_app.tasks[name], made)
    except Exception:  # noqa: BLE001 - what has no end in its request is decided by its own trace
        _log.exception("batch_broke: its events run one by one")
    return 0, [trace(name, call.id, call.request, call.body, None, None) for call in made], 0.0


def _settle(task: Any, calls: Sequence[PoolCall]) -> None:
    """Settle the deliveries of *calls*; the tracer finds the end of each in its request.

    Raises what ends the process, in a thread all of them go back; and bugs of ours.
    """
    deliveries, requests = [], {}
    for call in calls:
        args, kwargs, _embed = call.body
        request = Context(call.request)
        delivery = delivery_of(
            task.app, call.request[FIELD], args, kwargs, ack_follows=ack_follows(task, request)
        )
        deliveries.append(delivery)
        requests[delivery.token] = request
    owned = own_stacks()
    try:
        executor = runtime_of(task.app).executor()
        ends = BatchExecutor(executor, partial(_following, requests)).take(deliveries)
    except BaseException as error:
        if isinstance(error, Exception):  # a bug of ours: the claims stay with those that run alone
            raise
        _release(task, deliveries, error)
        if threading.current_thread() is threading.main_thread():
            raise  # the process ends, and its parent frees a claim that is left
        # A pool of threads would neither end nor give the messages back.
        back = GivenBack(f"its thread was ended: {error!r}")
        ends = [SettledDelivery(delivery, given_back=back) for delivery in deliveries]
    finally:
        disown_stacks(owned)
    for call, end in zip(calls, ends, strict=True):
        call.request[SETTLED] = end
        keep_told_retry(request := requests[end.delivery.token])
        if request.ignore_result:
            call.request["ignore_result"] = True


@contextmanager
def _following(requests: Mapping[str, Any], delivery: Delivery) -> Iterator[None]:
    """Let what waits for *delivery* be told by its own request."""
    following = FOLLOWING.set(requests[delivery.token])
    try:
        yield
    finally:
        FOLLOWING.reset(following)


def _release(task: Any, deliveries: Sequence[Delivery], error: BaseException) -> None:
    """End the claims of *deliveries*, which *error* ends; a start that is cut does not count."""
    runtime = runtime_of(task.app)
    its_own = not (runtime.stopping.cutting or terminate_handler_fired())
    in_thread = threading.current_thread() is not threading.main_thread()
    for delivery in deliveries:
        if its_own:
            runtime.executor().release_dying(delivery, error)
        elif in_thread:
            runtime.executor().claimer.release(delivery, counted=False)
