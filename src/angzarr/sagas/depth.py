"""Depth: how many events and commands a chain may have before a circle is suspected. Pure."""

from __future__ import annotations

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
