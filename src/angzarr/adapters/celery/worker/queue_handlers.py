"""Served: which queues bring which handlers their messages, by Celery's routing.

A queue may stop being consumed only if nothing else comes through it, so doubt counts as a yes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

from celery.app.routes import MapRoute
from kombu import Queue

from angzarr.delivery.handlers import Handler

#: What an address may have beside or in place of a queue; it can lead anywhere.
_ELSEWHERE: Final = ("exchange", "exchange_type", "routing_key")


def handlers_of_queues(app: Any) -> Mapping[str, list[Handler]]:
    """Return the handlers that each known queue serves, Celery's own tasks left out.

    One whose queue is not certain counts for every queue: a routing function decides by the
    arguments, an exchange by its bindings. What a publisher says with one message (`queue=…`) is
    not known here.
    """
    queues = dict(app.amqp.queues)  # publishing may add one meanwhile
    served: dict[str, list[Handler]] = {}
    moved = _moved(app)
    reached = cache(lambda name: _reached(name, queues))
    for handler in app.handlers:
        if handler.name.startswith("celery."):
            continue
        names = _queues_of(app, handler, moved.get(handler.name, ()))
        found = queues.keys() if names is None else set[str]().union(*map(reached, names))
        for name in found:
            served.setdefault(name, []).append(handler)
    return served


def _moved(app: Any) -> Mapping[str, list[str | None]]:
    """Return the queues to which publishers send that do not import the handler, by its name."""
    moved: dict[str, list[str | None]] = {}
    for subscriptions in app.routes.values():
        for subscription in subscriptions:
            moved.setdefault(subscription.handler, []).append(subscription.queue)
    return moved


def _queues_of(app: Any, handler: Handler, moved: Iterable[str | None]) -> set[str] | None:
    """Return the queues that *handler* is sent to, None if that is not certain."""
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


def _name(app: Any, queue: object) -> str:
    """Return the name of a queue given as such, by name or by alias."""
    name = queue.name if isinstance(queue, Queue) else str(queue)
    queues = app.amqp.queues
    return str(queues[name].name) if name in queues.aliases else name


def _route(app: Any, name: str) -> Mapping[str, Any] | None:
    """Return what `task_routes` say of a task; None if only a message's arguments tell."""
    for router in app.amqp.routes:
        if not isinstance(router, MapRoute):
            return None
        if (found := router(name)) is not None:
            return dict(found)
    return {}


def _reached(name: str, queues: Mapping[str, Queue]) -> set[str]:
    """Return the queue *name* and those that may get what it is sent."""
    if name not in queues:
        return {name}
    to = queues[name]
    return {name, *(other for other, queue in queues.items() if _copies(to, queue))}


def _copies(to: Queue, other: Queue) -> bool:
    """Tell whether what is sent to one queue may reach the *other* through a shared exchange.

    Through a direct exchange Celery sends to the queue by its name.
    """
    exchange = to.exchange
    if exchange.type == "direct" or exchange.name != other.exchange.name:
        return False
    key = str(other.routing_key or "")
    wild = exchange.type != "topic" or "*" in key or "#" in key
    return wild or key == to.routing_key
