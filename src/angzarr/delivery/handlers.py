"""Handlers: who takes which event, and by which rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from angzarr.delivery.context import Context
from angzarr.delivery.delivery import Delivery
from angzarr.errors import DuplicateHandler
from angzarr.ordering.order import Order
from angzarr.resilience.backoff import Policy
from angzarr.resilience.guarded import Guard
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
    #: The handler or task that undoes what this one did, by name; it takes the same event.
    compensation: str | None = None
    #: Whether running it twice does no harm: then "server" errors are retried (decisions 26).
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
        """Return the handler registered as *name*."""
        return self._by_name.get(name)

    def of_type(self, event_type: str) -> Sequence[Handler]:
        """Return every handler of *event_type* that takes events as they come, in order."""
        return tuple(self._by_type.get(event_type, ()))

    def ordered(self, domain: str) -> Sequence[Handler]:
        """Return every ordered handler of *domain*'s events, in order of registration."""
        return tuple(self._ordered.get(domain, ()))

    def ordered_of_type(self, event_type: str) -> Sequence[Handler]:
        """Return every ordered handler that takes *event_type*, of whatever domain, in order."""
        return tuple(self._ordered_by_type.get(event_type, ()))

    def domains(self) -> Mapping[str, list[Handler]]:
        """Return the handlers of each domain that some handler names."""
        found: dict[str, list[Handler]] = {}
        for handler in self:
            if handler.domain is not None:
                found.setdefault(handler.domain, []).append(handler)
        return found

    def __iter__(self) -> Iterator[Handler]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)
