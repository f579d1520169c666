"""Depth: how many events and commands a chain may have before a circle is suspected. Pure."""

from __future__ import annotations

from dataclasses import replace

from angzarr.aggregates.command import Command, Origin
from angzarr.errors import ChainTooDeep
from angzarr.events.event import Event


def check_depth(event: Event, most: int) -> None:
    """Refuse what has more than *most* before it; raises ChainTooDeep, which no retry cures."""
    if event.depth > most:
        msg = (
            f"{event.depth} events and commands came before this {event.type}: they answer each"
            f" other in a circle, or saga_compensation.max_depth ({most}) is too small"
        )
        raise ChainTooDeep(msg)


def deeper(told: Command, ours: Event, origin: Origin) -> Command:
    """Return *told*, which a notification brought, one deeper in the flow of *ours*.

    The wire has no field for most of that, nor for the id of the same command.
    """
    same = (told.event.type, told.event.data) == (ours.type, ours.data)
    event = replace(
        told.event,
        id=ours.id if same and told.address == Command(event=ours).address else told.id,
        correlation_id=ours.correlation_id,
        tenant_id=ours.tenant_id,
        priority=ours.priority,
        config_pins=ours.config_pins,
        traceparent=ours.traceparent,
        depth=ours.depth + 1,
    )
    return Command(event=event, origin=origin)
