"""Stops consuming a queue while all of its handlers are held back (spec D5, 27).

Messages then wait in the broker, where they cost nothing. Queues that also serve other handlers
are consumed, and held messages in them are postponed one by one. In doubt a queue serves a handler.

Without a flow store a child finds out by itself that a domain is held, and tells its parent through
`HeldDomains`. With one, the parent learns the begin and the end from the store.
"""

from __future__ import annotations

import logging
import mmap
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import cache
from typing import Any, Final, TypeAlias

from celery import Celery
from celery.app.routes import MapRoute
from kombu import Queue

from angzarr.adapters.celery.worker.runtime import runtime_of
from angzarr.clock import SystemClock
from angzarr.delivery.handlers import Handler

_log = logging.getLogger("angzarr.worker")

#: Seconds of `time.monotonic`, one clock for all processes of a machine, until when a domain is
#: held back: whether the machine's other clock is right, or set meanwhile, matters to none of them.
_UNTIL = struct.Struct("d")
#: Domains of one app that are kept apart; others are postponed only.
_MOST = 512


class HeldDomains:
    """One shared page, made before the pool forks. A torn or lost write costs one wait, no more."""

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, _MOST * _UNTIL.size)
        self._places: dict[str, int] = {}

    def begin(self, domains: list[str]) -> None:
        """Give each of *domains* its place; called before the pool forks."""
        self._page = mmap.mmap(-1, _MOST * _UNTIL.size)
        self._places = {name: at for at, name in enumerate(sorted(domains)[:_MOST])}
        for name in self._places:
            self._write(name, 0.0)

    def hold(self, domain: str, until: datetime) -> None:
        """Let every process of this worker know that *domain* is held back until then.

        *until* is of the fleet's time, as `SystemClock` tells it.
        """
        if domain in self._places:
            left = (until - SystemClock().now()).total_seconds()
            self._write(domain, time.monotonic() + left)

    def now(self) -> set[str]:
        """The domains that are held back."""
        at = time.monotonic()
        return {name for name in self._places if self._read(name) > at}

    def _write(self, domain: str, until: float) -> None:
        _UNTIL.pack_into(self._page, self._places[domain] * _UNTIL.size, until)

    def _read(self, domain: str) -> float:
        (until,) = _UNTIL.unpack_from(self._page, self._places[domain] * _UNTIL.size)
        return float(until)


#: What an address may have beside or in place of a queue; it can lead anywhere.
_ELSEWHERE: Final = ("exchange", "exchange_type", "routing_key")


def handlers_of_queues(app: Celery) -> Mapping[str, list[Handler]]:
    """The handlers that each known queue serves, Celery's own tasks left out.

    One whose queue is not certain counts for every queue: a routing function decides by the
    arguments, an exchange by its bindings. What a publisher says with one message (`queue=…`) is
    not known here.
    """
    queues = dict(app.amqp.queues)  # publishing may add one meanwhile
    served: dict[str, list[Handler]] = {}
    moved = _moved(app)
    reached = cache(lambda name: _reached(name, queues))
    for handler in runtime_of(app).handlers:
        if handler.name.startswith("celery."):
            continue
        names = _queues_of(app, handler, moved.get(handler.name, ()))
        found = queues.keys() if names is None else set[str]().union(*map(reached, names))
        for name in found:
            served.setdefault(name, []).append(handler)
    return served


def _moved(app: Celery) -> Mapping[str, list[str | None]]:
    """The queues, by handler, to which publishers send that do not import the handler."""
    moved: dict[str, list[str | None]] = {}
    for subscriptions in runtime_of(app).routes.values():
        for subscription in subscriptions:
            moved.setdefault(subscription.handler, []).append(subscription.queue)
    return moved


def _queues_of(app: Celery, handler: Handler, moved: Iterable[str | None]) -> set[str] | None:
    """The queues that *handler* is sent to, None if that is not certain."""
    task, route = app.tasks.get(handler.name), _route(app, handler.name)
    said = (handler.queue, *moved)
    if _leads_elsewhere({option: getattr(task, option, None) for option in _ELSEWHERE}):
        return None
    if route is None:
        return None if None in said else {_name(app, queue) for queue in said}
    if _leads_elsewhere(route):
        return None
    usual = route.get("queue") or app.conf.task_default_queue
    return {_name(app, queue or usual) for queue in said}


def _leads_elsewhere(options: Mapping[str, Any]) -> bool:
    return any(options.get(option) for option in _ELSEWHERE)


def _name(app: Celery, queue: object) -> str:
    """The name of a queue given as such, by name or by alias."""
    name = queue.name if isinstance(queue, Queue) else str(queue)
    queues = app.amqp.queues
    return str(queues[name].name) if name in queues.aliases else name


def _route(app: Celery, name: str) -> Mapping[str, Any] | None:
    """The route of a task in `task_routes`; None if it depends on a message's arguments."""
    for router in app.amqp.routes:
        if not isinstance(router, MapRoute):
            return None
        if (found := router(name)) is not None:
            return dict(found)
    return {}


def _reached(name: str, queues: Mapping[str, Queue]) -> set[str]:
    """The queue *name* and those that may get copies of its messages."""
    if name not in queues:
        return {name}
    to = queues[name]
    return {name, *(other for other, queue in queues.items() if _copies(to, queue))}


def _copies(to: Queue, other: Queue) -> bool:
    """True if a message for one queue may reach the *other* through a shared exchange.

    Through a direct exchange Celery sends to the queue by its name.
    """
    exchange = to.exchange
    if exchange.type == "direct" or exchange.name != other.exchange.name:
        return False
    key = str(other.routing_key or "")
    wild = exchange.type != "topic" or "*" in key or "#" in key
    return wild or key == to.routing_key


#: Tells why a handler is held back, or None: it is not.
Held: TypeAlias = Callable[[Handler], str | None]


class QueuePauser:
    """Stops and resumes the consuming of queues; in the parent's loop.

    *holding* returns, once a turn, what tells why a handler is held back. *stop* and *resume* are
    Celery's: both select the queue or not before they tell the broker, so that what they say holds
    at the next connection too.
    """

    def __init__(
        self,
        consumer: Any,
        holding: Callable[[], Held],
        *,
        stop: Callable[[str], object],
        resume: Callable[[str], object],
    ) -> None:
        self._consumer = consumer
        self._holding = holding
        self._stop = stop
        self._resume = resume
        self._closed: set[str] = set()

    def turn(self) -> None:
        """Pause the queues that are held back, and resume the others; runs once a second."""
        app, tasks = self._consumer.app, self._consumer.task_consumer
        if tasks is None or runtime_of(app).stopping():
            return
        self._closed = {queue for queue in self._closed if not tasks.consuming_from(queue)}
        to_close = _all_held(app, self._holding())
        for queue in sorted(to_close.keys() - self._closed):
            if tasks.consuming_from(queue):  # else an operator stopped it, or it is not ours
                self._close(queue, to_close[queue])
        for queue in sorted(self._closed - to_close.keys()):
            self._open(queue)

    def leave(self, queue: str) -> None:
        """Take note that an operator stops or resumes *queue*: what he says holds from now on."""
        self._closed.discard(queue)

    def _close(self, queue: str, why: str) -> None:
        _log.warning("consuming_stopped: of queue %s: %s", queue, why)
        self._closed.add(queue)  # first: where the broker is lost meanwhile, it is stopped as well
        self._stop(queue)

    def _open(self, queue: str) -> None:
        _log.warning("consuming_resumed: of queue %s", queue)
        self._resume(queue)
        self._closed.discard(queue)  # last: what fails is done again


def _all_held(app: Celery, held: Held) -> dict[str, str]:
    """The queues all of whose handlers are held back, and why."""
    reasons = {
        handler.name: why
        for handler in runtime_of(app).handlers
        if (why := held(handler)) is not None
    }
    if not reasons:
        return {}
    return {
        queue: ", ".join(dict.fromkeys(reasons[handler.name] for handler in served))
        for queue, served in handlers_of_queues(app).items()
        if all(handler.name in reasons for handler in served)
    }
