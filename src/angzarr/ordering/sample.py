"""Sample: what somebody last saw of an ordered handler, for metrics. A value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from angzarr.ordering.lane import Gap, Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """How much of a handler's work waits, and in how many of its lanes."""

    #: Its task name.
    handler: str
    #: Events that are parked behind others.
    parked: int
    #: Lanes that a dead letter holds up, and those whose next event nobody knows of.
    blocked: int
    gaps: int
    #: Events that it has not passed; None: nobody counted them.
    events_behind: int | None = None


def samples_of(
    summaries: Iterable[Summary], gaps: Iterable[Gap], behind: Mapping[str, int] | None = None
) -> list[Sample]:
    """Return a sample for each of *summaries*; *behind*: events that handlers have not passed."""
    missing = Counter(gap.lane.handler for gap in gaps)
    return [
        Sample(
            handler=one.handler,
            parked=one.parked,
            blocked=one.blocked,
            gaps=missing[one.handler],
            events_behind=(behind or {}).get(one.handler),
        )
        for one in summaries
    ]
