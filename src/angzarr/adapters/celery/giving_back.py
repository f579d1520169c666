"""Giving back: what a worker has in hand goes back to its broker, its claims freed before."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from celery.worker import state

from angzarr.adapters.celery.riding import alight

_log = logging.getLogger("angzarr.worker")


def unbegun(consumer: Any) -> list[Any]:
    """Return the requests that no process or thread has begun: in line, for later, throttled."""
    waiting = {id(one): one for one in _waiting(consumer)}
    return [one for one in waiting.values() if one not in state.active_requests]


def _waiting(consumer: Any) -> Iterator[Any]:
    yield from tuple(state.reserved_requests)
    yield from tuple(state.scheduled_requests)
    for bucket in tuple(consumer.task_buckets.values()):
        for request, _tokens in tuple(bucket.contents) if bucket else ():
            yield request


def give_back_requests(app: Any, requests: Iterable[Any]) -> int:
    """Give back what is unacknowledged of *requests*; return how many. None is run or let go later.

    Whoever runs one of them all the same finds its claim gone, and it is not acknowledged twice.
    """
    ours = [request for request in requests if not request.acknowledged]
    for request in ours:
        request.acknowledged = True
        if (entry := getattr(request, "_eta_timer_entry", None)) is not None:
            entry.cancel()
        state.task_ready(request)
    alight(app, [request.message for request in ours])
    give_back_messages([request.message for request in ours])
    for request in ours:
        request.send_event("task-rejected", requeue=True)
    return len(ours)


def give_back_messages(messages: Sequence[Any]) -> None:
    """Return *messages* to where they came from, those of one channel together where it can."""
    by_channel: dict[int, list[Any]] = {}
    for message in messages:
        by_channel.setdefault(id(message.channel), []).append(message)
    for together in by_channel.values():
        try:
            _return(together[0].channel, together)
        except Exception as error:  # noqa: BLE001 - they come back when the connection ends
            _log.warning("messages_not_given_back: with the connection then (%s)", error)


def _return(channel: Any, messages: Sequence[Any]) -> None:
    qos: Any = getattr(channel, "qos", None)
    if hasattr(qos, "give_back"):  # our own transports
        qos.give_back([message.delivery_tag for message in messages])
    else:
        for message in reversed(messages):
            message.requeue()
