"""Limits: how often, and how many at a time, a fleet may run what shares a limit's name.

A call over a limit gets a place in line, some pace behind the one before, so that not all ask again
at once. If the line is too long its wait is by chance in the second half of the longest one: any
number of calls then ask no more often than that.

A rate is metered by the generic cell rate algorithm (ITU-T I.371): each call makes the next one
due an interval later, and a call may come before it is due by as much as a burst needs. In any span
of t seconds no more than burst + rate·t calls are let through. The rules are pure, and `limit.lua`
says the same to Redis. Times are seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import timedelta
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias, get_args

from angzarr.errors import ConfigurationError
from angzarr.events.event import Event
from angzarr.resilience.backoff import check_fields
from angzarr.resilience.breaker_guard import check_name


class LineWait(NamedTuple):
    """How long to wait before asking again: at least so long, and up to `spread` longer."""

    least: timedelta
    spread: timedelta = timedelta(0)

    def by(self, chance: float) -> timedelta:
        """The wait that *chance* (0 to 1) gives."""
        return self.least + self.spread * chance


def next_place(
    line: float, soonest: float, *, pace: float, longest: float
) -> tuple[float | None, LineWait]:
    """The end of the line behind one more who joins it, None: he does not; and his wait.

    *line* is where the next place would be, *soonest* how early there can be one.
    """
    place = max(line, soonest)
    if place > longest:
        half = timedelta(seconds=longest / 2)
        return None, LineWait(half, half)
    return place + pace, LineWait(timedelta(seconds=place))


#: What a limit may be counted apart by.
Per: TypeAlias = Literal["tenant", "event_type", "handler", "root"]


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit that all handlers share which name it. Raises ConfigurationError for nonsense.

    *rate* is calls a second, on average; up to *burst* of them (by default a second's, at least
    one) may come at once after a pause. *concurrency* is how many may run at a time. *per* tenant,
    event type, handler or root they are counted apart; events without one are counted together.
    Settings of the same name (`flow.limits`) win, field by field.
    """

    name: str
    _: KW_ONLY
    rate: float | None = None
    burst: float | None = None
    concurrency: int | None = None
    per: Per | None = None

    def __post_init__(self) -> None:
        check_name(self.name, "a limit")
        check_fields(
            f"limit {self.name!r}",
            (self.rate is None or self.rate > 0, "rate must be more than 0"),
            (self.burst is None or self.burst >= 1, "burst must be 1 or more"),
            (self.concurrency is None or self.concurrency >= 1, "concurrency must be 1 or more"),
            (self.per in (None, *_KEYS), f"per must be one of {', '.join(_KEYS)}"),
        )

    @property
    def interval(self) -> float:
        """Seconds between two calls that come evenly; 0 without a rate."""
        return 0.0 if self.rate is None else 1 / self.rate

    @property
    def tolerance(self) -> float:
        """Seconds that a call may come before it would be due, since bursts are allowed."""
        if self.rate is None:
            return 0.0
        burst = max(1.0, self.rate) if self.burst is None else self.burst
        return (burst - 1) / self.rate

    def key(self, event: Event, handler: str) -> str:
        """What calls of *handler* for *event* are counted together by."""
        match self.per:
            case "tenant":
                return event.tenant_id or ""
            case "event_type":
                return event.type
            case "handler":
                return handler
            case "root":
                return event.root or ""
            case _:
                return ""


_KEYS: tuple[str, ...] = get_args(Per)

#: A limit, the name of one in the settings, or several.
Limited: TypeAlias = str | Limit | list[str | Limit] | tuple[str | Limit, ...] | None


class LimitScope(NamedTuple):
    """A limit and the key of the calls that it counts together."""

    limit: Limit
    key: str


class Exceeded(NamedTuple):
    """The limit *name* is reached."""

    name: str
    wait: LineWait


class Limits(Protocol):
    """The limits of a process or a fleet.

    No verb raises: a flow store that is away lets calls through (fail open).
    """

    def take(self, scopes: Sequence[LimitScope], token: str, /) -> Exceeded | None:
        """Let *token* call within each of *scopes*, or take nothing and return the limit reached.

        A slot of a concurrency limit is held until `release`, or until its process dies.
        """

    def release(self, scopes: Sequence[LimitScope], token: str, /) -> None:
        """Free what *token* holds; harmless if it holds nothing."""


def limits_of(limited: Limited, settings: Mapping[str, Mapping[str, Any]]) -> tuple[Limit, ...]:
    """The limits that a handler names, the fields in *settings* put over the code's.

    Raises ConfigurationError for an invalid limit, and for one that limits nothing because its
    name is set nowhere.
    """
    if limited is None:
        return ()
    given = limited if isinstance(limited, list | tuple) else [limited]
    return tuple({limit.name: limit for limit in (_limit(one, settings) for one in given)}.values())


def _limit(given: object, settings: Mapping[str, Mapping[str, Any]]) -> Limit:
    if not isinstance(given, str | Limit):
        msg = f"a limit is a Limit or the name of one in flow.limits, not {given!r}"
        raise ConfigurationError(msg)
    limit = Limit(given) if isinstance(given, str) else given
    limit = replace(limit, **settings.get(limit.name, {}))
    if limit.rate is None and limit.concurrency is None:
        msg = (
            f"limit {limit.name!r} limits nothing: give it a rate or a concurrency, in the settings"
            f" (flow.limits: {{{limit.name}: {{rate: 50}}}}) or in code"
            f" (limit=Limit({limit.name!r}, rate=50))"
        )
        raise ConfigurationError(msg)
    return limit


#: A call over a limit waits so long at least, and at most; in seconds.
SHORTEST: Final = 0.01
LONGEST: Final = 300.0
#: The same for a slot: how soon one is free is only estimated.
LONGEST_FOR_A_SLOT: Final = 60.0

#: What a new call weighs in the mean of how long slots are held.
_WEIGHT: Final = 0.2


class Gauge(NamedTuple):
    """The known state of one scope, besides who holds its slots."""

    #: When the next call is due if calls come evenly.
    due: float = 0.0
    #: The next place in the line for the rate, and in the line for a slot.
    line: float = 0.0
    queue: float = 0.0
    #: How long a call holds its slot, on average; at first a guess that is rather too short: who
    #: comes too early asks again, who comes too late leaves a slot idle.
    held: float = 0.1


NEW: Final = Gauge()


def early(limit: Limit, gauge: Gauge, now: float) -> float:
    """How many seconds too early a call would be; 0: it may be made."""
    return 0.0 if limit.rate is None else max(0.0, gauge.due - limit.tolerance - now)


def called(limit: Limit, gauge: Gauge, now: float) -> Gauge:
    """The gauge after a call that was let through."""
    if limit.rate is None:
        return gauge
    return gauge._replace(due=max(gauge.due, now) + limit.interval)


def wait_for_rate(limit: Limit, gauge: Gauge, now: float) -> tuple[Gauge, LineWait]:
    """The gauge with one more in line for a call, an interval behind the one before."""
    soonest = max(early(limit, gauge, now), SHORTEST)
    behind, wait = next_place(gauge.line - now, soonest, pace=limit.interval, longest=LONGEST)
    return (gauge if behind is None else gauge._replace(line=now + behind)), wait


def wait_for_slot(limit: Limit, gauge: Gauge, now: float) -> tuple[Gauge, LineWait]:
    """The gauge with one more in line for a slot.

    A slot is free again as often as calls end: places are as far apart as that on average.
    """
    pace = max(SHORTEST, gauge.held / (limit.concurrency or 1))
    behind, wait = next_place(gauge.queue - now, pace, pace=pace, longest=LONGEST_FOR_A_SLOT)
    return (gauge if behind is None else gauge._replace(queue=now + behind)), wait


def released(gauge: Gauge, took: float) -> Gauge:
    """The gauge after a call that held its slot for *took* seconds."""
    return gauge._replace(held=gauge.held + (took - gauge.held) * _WEIGHT)
