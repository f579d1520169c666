"""Fan-out: who gets an event. One message for each handler (decisions 13). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from angzarr.delivery.handlers import Handler, Handlers
from angzarr.errors import DecodeError, EventDoesNotFit
from angzarr.events.event import Event
from angzarr.ordering.order import lane_of

#: After a domain: all its events, of whatever type.
ALL: Final = "/*"


class Subscription(NamedTuple):
    """A handler by task name; no `queue`: wherever Celery's own routing sends the task."""

    handler: str
    queue: str | None = None


def subscriptions(
    event_type: str,
    domain: str | None,
    handlers: Handlers,
    routes: Mapping[str, Sequence[Subscription]],
) -> list[Subscription]:
    """Return who gets an event: registered here, or named in the settings; each once.

    Ordered handlers get every event of their domains. A route may move a registered handler to
    another queue; one of the type wins over one of the domain, and none brings an ordered handler
    the events of another domain. What undoes a handler of the same
    type takes the event where it is to be undone, and not where it is published.
    """
    taking, ordered = handlers.of_type(event_type), _ordered(domain, handlers)
    undoing = {one.compensation for one in (*taking, *handlers.ordered_of_type(event_type))}
    found = {
        handler.name: Subscription(handler.name, handler.queue)
        for handler in (*taking, *ordered)
        if handler.name not in undoing
    }
    for_all = () if domain is None else routes.get(domain + ALL, ())
    for route in (*for_all, *routes.get(event_type, ())):
        handler = handlers.get(route.handler)
        if handler is None or handler.order is None or domain in handler.order.domains:
            found[route.handler] = route
    return list(found.values())


def in_domain(event: Event, handlers: Handlers) -> Event:
    """Return *event* with the domain from which ordered handlers take its type, if it has none.

    Raises EventDoesNotFit if they take it from several.
    """
    if event.domain is not None:
        return event
    domains = sorted(
        {
            domain
            for handler in handlers.ordered_of_type(event.type)
            if handler.order is not None
            for domain in handler.order.domains
        }
    )
    if not domains:
        return event
    if len(domains) > 1:
        msg = (
            f"ordered handlers take {event.type!r} from the domains {', '.join(domains)}, and this"
            " event says no domain: publish it with domain=…"
        )
        raise EventDoesNotFit(msg)
    return replace(event, domain=domains[0])


def check_place(event: Event, handlers: Handlers) -> None:
    """Refuse an event that has no place in the lanes of an ordered handler known here.

    Raises EventDoesNotFit.
    """
    for handler in _ordered(event.domain, handlers):
        if handler.order is not None:
            try:
                lane_of(event, handler.name, handler.order)
            except DecodeError as error:
                raise EventDoesNotFit(str(error)) from error


def check_data(event: Event, handlers: Handlers) -> None:
    """Refuse data that a handler known here could never read; others check when they run.

    Raises EventDoesNotFit.
    """
    for handler in (*handlers.of_type(event.type), *_ordered(event.domain, handlers)):
        if handler.decode is not None and _takes(handler, event):
            try:
                handler.decode(event.data)
            except DecodeError as error:
                msg = f"{error}; {handler.name} could not take it (check=False sends it anyway)"
                raise EventDoesNotFit(msg) from error


def _takes(handler: Handler, event: Event) -> bool:
    return handler.order is None or event.type in handler.order.types


def _ordered(domain: str | None, handlers: Handlers) -> Sequence[Handler]:
    return () if domain is None else handlers.ordered(domain)
