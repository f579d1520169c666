"""Handlers: who takes which event, and by which rules. Pure.

Fan-out makes one message for each handler. A delivery's domain is the handler's,
else the event's, else the queue's, else the app's own. An event's domain is a header
that any publisher writes, so it names a dead-letter queue only if that queue is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final, NamedTuple

from angzarr.dead_letters.queue import UNKNOWN_DOMAIN
from angzarr.delivery.batch import Batch
from angzarr.delivery.context import Context
from angzarr.delivery.delivery import Delivery
from angzarr.errors import DecodeError, DuplicateHandler, EventDoesNotFit, InvalidDomainName
from angzarr.events.event import Event, check_domain
from angzarr.ordering.lane import Order, lane_of
from angzarr.resilience.backoff import Policy
from angzarr.resilience.breaker_guard import Guard
from angzarr.resilience.limit import Limit
from angzarr.resilience.taxonomy import Rule, VerdictRule

#: Binds a delivery to a call without arguments. Raises DecodeError if the event does not fit.
Bind = Callable[[Delivery, Context], Callable[[], Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A registered handler; `name` is its Celery task name, a plain task has no `event_type`."""

    name: str
    bind: Bind
    #: Reads an event's data as this handler declares it, or raises DecodeError.
    decode: Callable[[Any], Any] | None = None
    #: The policy that it names itself, looked up when it is asked for, since settings may change in
    #: a test; None: by rules (resilience/policy_rules.py).
    policy: Policy | str | None = None
    #: Those that it names for types of events, which come before that one.
    policies: Mapping[str, Policy] = field(default_factory=dict, hash=False)
    event_type: str | None = None
    domain: str | None = None
    operation: str | None = None
    #: The breakers around it, all of which must let a delivery through.
    breakers: tuple[Guard, ...] = ()
    #: What it shares with all that name the same: how often, and how many at a time.
    limits: tuple[Limit, ...] = ()
    #: Called in its place while one of them is open (spec D5).
    fallback: Bind | None = None
    queue: str | None = None
    #: In which order it takes events; None: as they come.
    order: Order | None = None
    #: How many events it takes in one call; None: one. `bind` makes a `BatchItem` of each then.
    batch: Batch | None = None
    #: The handler or task that undoes what this one did, by name; it takes the same event.
    compensation: str | None = None
    #: Whether running it twice does no harm: then "server" errors are retried.
    idempotent: bool = True
    #: What becomes of errors that are not retried; without a rule a dead letter (spec D2).
    verdicts: Sequence[VerdictRule] = ()
    rules: Sequence[Rule] = ()
    #: The longest an event may wait for flow control before it becomes a letter.
    max_age: timedelta = timedelta(days=1)
    #: What kind of component its letters come from.
    component_type: str = "handler"
    is_async: bool = False
    #: Exception types by which this handler says that it finished (Celery's Ignore).
    finished_by: tuple[type[BaseException], ...] = ()


@dataclass(slots=True)
class Handlers:
    """The registry, in order of registration."""

    _by_name: dict[str, Handler] = field(default_factory=dict)
    _by_type: dict[str, list[Handler]] = field(default_factory=dict)
    _ordered: dict[str, list[Handler]] = field(default_factory=dict)
    _ordered_by_type: dict[str, list[Handler]] = field(default_factory=dict)

    def add(self, handler: Handler) -> None:
        """Register *handler*; raises DuplicateHandler if its name is taken."""
        if handler.name in self._by_name:
            msg = (
                f"{handler.name!r} is registered twice: a handler's task name is its module and"
                " function name, so rename one of the functions or pass name=…"
            )
            raise DuplicateHandler(msg)
        self._by_name[handler.name] = handler
        if handler.order is not None:
            for domain in handler.order.domains:
                self._ordered.setdefault(domain, []).append(handler)
            for event_type in handler.order.types:
                self._ordered_by_type.setdefault(event_type, []).append(handler)
        elif handler.event_type is not None:
            self._by_type.setdefault(handler.event_type, []).append(handler)

    def get(self, name: str) -> Handler | None:
        """The handler registered as *name*."""
        return self._by_name.get(name)

    def compensation_of(self, name: str) -> str:
        """The task that undoes what the handler *name* does; empty: none, or it is unknown."""
        found = self.get(name)
        return (found and found.compensation) or ""

    def of_type(self, event_type: str) -> Sequence[Handler]:
        """Every handler of *event_type* that takes events as they come, in order."""
        return tuple(self._by_type.get(event_type, ()))

    def ordered(self, domain: str) -> Sequence[Handler]:
        """Every ordered handler of *domain*'s events, in order of registration."""
        return tuple(self._ordered.get(domain, ()))

    def ordered_of_type(self, event_type: str) -> Sequence[Handler]:
        """Every ordered handler that takes *event_type*, of whatever domain, in order."""
        return tuple(self._ordered_by_type.get(event_type, ()))

    def domains(self) -> Mapping[str, list[Handler]]:
        """The handlers of each domain that some handler names."""
        found: dict[str, list[Handler]] = {}
        for handler in self:
            if handler.domain is not None:
                found.setdefault(handler.domain, []).append(handler)
        return found

    def __iter__(self) -> Iterator[Handler]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Domains:
    """The domains of an app. Safe to use from many threads."""

    #: The domains whose letters the analysis worker reads.
    read: frozenset[str] = frozenset()
    of_queue: Callable[[str], str | None] = lambda _queue: None
    #: The app's own, where nothing else names one.
    default: str = UNKNOWN_DOMAIN

    def of_delivery(self, handler: Handler | None, of_event: str | None, queue: str) -> str:
        """The domain by which people mean a delivery; nothing is named after it."""
        return self._first(handler, of_event if _is_valid(of_event) else None, queue)

    def of_letter(self, handler: Handler | None, of_event: str | None, queue: str) -> str:
        """The domain whose letter it is; an event's own counts only if it is read.

        Else the letter would wait in a queue that is not read, and senders of messages could make
        up any number of queues.
        """
        return self._first(handler, of_event if of_event in self.read else None, queue)

    def _first(self, handler: Handler | None, of_event: str | None, queue: str) -> str:
        of_handler = handler.domain if handler is not None else None
        return of_handler or of_event or self.of_queue(queue) or self.default


def _is_valid(name: str | None) -> bool:
    try:
        check_domain(name or "")
    except InvalidDomainName:
        return False
    return True


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
    """The subscribers of an event: registered here, or named in the settings; each once.

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
    """*event* with the domain from which ordered handlers take its type, if it has none.

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
