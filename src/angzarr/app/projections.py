"""A projection becomes one ordered handler for all events of its domains (spec P1)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar, cast

from angzarr.adapters.celery.worker.binding import body_of
from angzarr.adapters.celery.worker.task_classes import CeleryTasks
from angzarr.app.registry import HandlerRegistry, called_directly, check_is, give_name
from angzarr.delivery.context import Context
from angzarr.delivery.delivery import Delivery
from angzarr.delivery.handlers import Bind
from angzarr.errors import ConfigurationError
from angzarr.events.event import Event, check_domain
from angzarr.ordering.lane import Order, check_first
from angzarr.ordering.lanes import Lanes
from angzarr.projections.projection import Projection, handler_name, policy_of
from angzarr.resilience.backoff import Policy
from angzarr.wiring.process import ProcessParts

P = TypeVar("P", bound=type[Projection])

#: As its letters and the ledger call it.
_COMPONENT: Final = "projector"

#: Options of handlers that a projection has not, and what to say instead.
_INSTEAD: Final = {
    "domain": "say domains",
    "policy": "say retry_policy",
    "fallback": "an event that it has not written is not handled",
    "compensation": "rebuild it",
}


class ProjectionRegistry:
    """Registers classes that keep read models."""

    def __init__(self, parts: ProcessParts, registry: HandlerRegistry, tasks: CeleryTasks) -> None:
        self._context = parts.context
        self._parts = parts
        self._registry = registry
        self._tasks = tasks

    def projection(
        self,
        /,
        name: str,
        *,
        domains: str | Sequence[str],
        queue: str | None = None,
        first_sequence: int = 0,
        retry_policy: Policy | str | None = None,
        **options: Any,
    ) -> Callable[[P], P]:
        """Register a projection of the events of *domains*, under its *name* for ever.

        It takes the events of each aggregate in their order, which begins with *first_sequence*.
        Its letters are those of the first of *domains*. *retry_policy* comes before that of the
        class; *options* are those of `handler` (breaker, limit, …) and of Celery's tasks. Raises
        ConfigurationError, DuplicateHandler or InvalidDomainName at once.
        """
        check_domain(name)
        named = _domains(domains)
        check_first(first_sequence)
        _check_options(options)

        def register(kind: P) -> P:
            check_is(kind, Projection)
            if (first := self._context.projections.get(name)) and self._tasks.keeps_first(
                name, first, kind
            ):
                return cast("P", first)
            kind.check()
            known = self._context.policy_rules.named
            policy = known(policy_of(kind, retry_policy, stacklevel=2))
            by_type = {one: known(said) for one, said in kind.policies_by_type().items()}
            self._keep_projection(kind, name)
            self._registry.take(
                handler_name(name),
                _binding(kind, lambda: self._parts.ordering.lanes),
                called_directly,
                domain=named[0],
                policy=policy,
                policies=by_type,
                queue=queue,
                order=Order(
                    domains=frozenset(named),
                    types=frozenset(kind.methods.handles),
                    first=first_sequence,
                    moves=True,
                ),
                component_type=_COMPONENT,
                **options,
            )
            return kind

        return register

    def _keep_projection(self, kind: type[Projection], name: str) -> None:
        """Give *kind* its name, which must be unique: its lanes and its checkpoint go by it."""
        give_name(kind, "name", name)
        other = self._context.projections.setdefault(name, kind)
        if other is not kind:
            msg = (
                f"{name!r} is the name of {other.__qualname__} and of {kind.__qualname__}, and how"
                " far a projection has come is kept by it: give each a name of its own"
            )
            raise ConfigurationError(msg)


def _binding(kind: type[Projection], lanes: Callable[[], Lanes]) -> Bind:
    """Bind deliveries to *kind*; data that do not fit are refused before anything is claimed."""

    def bind(delivery: Delivery, context: Context) -> Callable[[], Any]:
        body_of(delivery)
        event = _typed(delivery, kind.methods.handles)
        data = kind.decoded(event)

        def work(connection: Any) -> None:
            kind(connection, event).project(data)

        if context.turn is not None:
            return partial(context.turn.run, work)
        return partial(_eagerly, lanes, work)

    return bind


def _typed(delivery: Delivery, types: Collection[str]) -> Event:
    """The event; one of no type, as ``apply()`` sends it, is of the only one that there is.

    A message without a type has its task's name for one.
    """
    event = delivery.event
    if event.type == delivery.handler and len(types) == 1:
        return replace(event, type=next(iter(types)))
    return event


def _eagerly(lanes: Callable[[], Lanes], work: Callable[[Any], None]) -> None:
    """Do *work* in a transaction of its own, for ``apply()`` and tests: no lane is moved."""
    with lanes().transaction() as connection:
        work(connection)


def _domains(given: str | Sequence[str]) -> tuple[str, ...]:
    listed = (given,) if isinstance(given, str) else tuple(given)
    if not listed:
        msg = 'a projection needs a domain whose events it takes: domains="order"'
        raise ConfigurationError(msg)
    for domain in listed:
        check_domain(domain)
    return listed


def _check_options(options: Mapping[str, Any]) -> None:
    for name, instead in _INSTEAD.items():
        if name in options:
            msg = f"a projection has no option {name}: {instead}"
            raise ConfigurationError(msg)
