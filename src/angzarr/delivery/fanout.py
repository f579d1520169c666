"""Fan-out: who gets an event of a type. One message for each handler (decisions 13). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from angzarr.delivery.handlers import Handlers


class Subscription(NamedTuple):
    """A handler by task name; no `queue`: wherever Celery's own routing sends the task."""

    handler: str
    queue: str | None = None


def subscriptions(
    event_type: str, handlers: Handlers, routes: Mapping[str, Sequence[Subscription]]
) -> list[Subscription]:
    """Return who takes *event_type*: registered here, or named in the settings; each once.

    A route may move a registered handler to another queue. What undoes a handler of the same type
    takes the event where it is to be undone, and not where it is published.
    """
    taking = handlers.of_type(event_type)
    undoing = {handler.compensation for handler in taking}
    found = {
        handler.name: Subscription(handler.name, handler.queue)
        for handler in taking
        if handler.name not in undoing
    }
    found.update((route.handler, route) for route in routes.get(event_type, ()))
    return list(found.values())
