"""Order: what a handler says of the order in which it takes events (spec D8, P3). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from angzarr.aggregates.book import Address, check_address
from angzarr.errors import ConfigurationError, DecodeError, InvalidDomainName, InvalidRoot
from angzarr.events.event import Event
from angzarr.ordering.lane import Lane


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An ordered handler is sent every event of its domains and takes those of `types`.

    The others only move its lanes.
    """

    domains: frozenset[str]
    types: frozenset[str]
    #: The sequence with which aggregates begin.
    first: int = 0
    #: Whether a run of the handler moves its lane itself, in the transaction of its effects.
    moves: bool = False


def order_by(by: str | None, domain: str | None, event_type: str, first: int) -> Order | None:
    """Return the order that a handler of *event_type* asks for; None: it asks for none.

    Raises ConfigurationError for what cannot be kept in order.
    """
    check_first(first)
    problem = _problem(by, domain, first)
    if problem:
        raise ConfigurationError(problem)
    if by is None or domain is None:
        return None
    return Order(domains=frozenset({domain}), types=frozenset({event_type}), first=first)


def check_first(sequence: object) -> None:
    """Raise ConfigurationError unless aggregates can begin with *sequence*."""
    if isinstance(sequence, bool) or not isinstance(sequence, int) or sequence < 0:
        msg = (
            "first_sequence must be a whole number from 0, the sequence with which aggregates"
            f" begin; got {sequence!r:.50}"
        )
        raise ConfigurationError(msg)


def refuse_order(options: Iterable[str]) -> None:
    """Refuse the names of *options* that only `handler` takes; raises ConfigurationError."""
    if not {"ordered_by", "first_sequence"}.isdisjoint(options):
        msg = "only events have an order: pass ordered_by and first_sequence to @app.handler"
        raise ConfigurationError(msg)


def _problem(by: str | None, domain: str | None, first: int) -> str:
    if by is None:
        why = 'first_sequence is for handlers that take events in order: pass ordered_by="root"'
        return f"{why} too, or leave it out" if first else ""
    if by != "root":
        return f'ordered_by must be "root"; got {by!r:.50}'
    if domain is None:
        return (
            'ordered_by="root" needs the domain of the aggregates: pass domain="order", the domain'
            " of their events"
        )
    return ""


def lane_of(event: Event, handler: str, order: Order) -> Lane:
    """Return the lane of *event*; raises DecodeError for one that has no place in any."""
    if event.domain is None or event.root is None or event.sequence is None:
        msg = (
            f"{handler} takes the events of an aggregate in order, and this one says no"
            f" {_missing(event)}: publish it with domain, root and sequence"
        )
        raise DecodeError(msg)
    if event.domain not in order.domains:
        listed = ", ".join(sorted(order.domains))
        msg = f"{handler} takes the events of {listed}, and this one is of {event.domain!r:.80}"
        raise DecodeError(msg)
    if event.sequence < order.first:
        msg = (
            f"the sequence {event.sequence} is before {order.first}, with which aggregates begin"
            f" for {handler}: register it with the first_sequence that its publishers use"
        )
        raise DecodeError(msg)
    try:
        address = check_address(Address(event.domain, event.root, event.edition or ""))
    except (InvalidDomainName, InvalidRoot) as error:
        raise DecodeError(str(error)) from error
    return Lane(handler, address, order.first)


def _missing(event: Event) -> str:
    return " and no ".join(
        name for name in ("domain", "root", "sequence") if getattr(event, name) is None
    )
