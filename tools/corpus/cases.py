"""Cases: what a seasoned operator calls a failure, and what there was to see when it was judged.

One letter may be judged in several situations: a refused connection is over or it is not.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from angzarr.analysis.ledger.entry import FailureClass

#: The release that every letter of the set failed under, and the one after it.
RELEASE, NEXT_RELEASE = "2026.05.1", "2026.05.2"


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What can be seen beside the letter. Independent of any classifier."""

    #: Name of each breaker that the handler has → {"state", "error_share" of its calls now}.
    breakers: dict[str, dict[str, Any]] = field(default_factory=dict)
    failing_release: str = RELEASE
    #: Oldest first.
    running_releases: tuple[str, ...] = (RELEASE,)
    #: How many different events have the letter's fingerprint.
    group_events: int = 1
    #: What became of the handler's other events in the last minutes.
    handler_recent: dict[str, int] = field(default_factory=lambda: {"handled": 0, "failed": 1})
    replays: int = 0
    #: Why the message cannot be sent to where it came from; `distrusted`: it may be forged.
    target_problem: str = ""
    distrusted: bool = False

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "running_releases": list(self.running_releases)}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A letter's class in one situation, and why it is that one."""

    label: FailureClass
    why: str
    situation: Situation = field(default_factory=Situation)


def breaker(name: str, state: str, error_share: float) -> dict[str, dict[str, Any]]:
    return {name: {"state": state, "error_share": error_share}}


def recent(handled: int, failed: int) -> dict[str, int]:
    return {"handled": handled, "failed": failed}


# -- transient -------------------------------------------------------------------------------


def ill(why: str, dependency: str, group_events: int = 41, **seen: Any) -> Case:
    """It would pass, but the dependency is still ill."""
    situation = {
        "breakers": breaker(dependency, "open", 0.94),
        "group_events": group_events,
        "handler_recent": recent(3, group_events),
    }
    return Case(
        label=FailureClass.TRANSIENT_ONGOING, why=why, situation=Situation(**situation | seen)
    )


def well(why: str, dependency: str, group_events: int = 41, **seen: Any) -> Case:
    """It passed: the dependency is well again."""
    situation = {
        "breakers": breaker(dependency, "closed", 0.0),
        "group_events": group_events,
        "handler_recent": recent(212, 0),
    }
    return Case(
        label=FailureClass.TRANSIENT_RESOLVED, why=why, situation=Situation(**situation | seen)
    )


def both(dependency: str, ill_because: str, well_because: str) -> tuple[Case, Case]:
    """Judged while it lasts, and again when it is over."""
    return ill(ill_because, dependency), well(well_because, dependency)


def unseen(why: str, **seen: Any) -> Case:
    """It would pass, and nobody can say whether its dependency is well: there is no breaker."""
    situation = {"group_events": 7, "handler_recent": recent(0, 9)}
    return Case(
        label=FailureClass.TRANSIENT_ONGOING, why=why, situation=Situation(**situation | seen)
    )


# -- everything else -------------------------------------------------------------------------


def misconfigured(why: str, **seen: Any) -> Case:
    """Every event fails until a person sets something right."""
    situation = {"group_events": 96, "handler_recent": recent(0, 34)}
    return Case(
        label=FailureClass.CONFIGURATION_ERROR, why=why, situation=Situation(**situation | seen)
    )


def corrupt(why: str, **seen: Any) -> Case:
    """This event's data is damaged; others go through."""
    situation = {"group_events": 1, "handler_recent": recent(318, 1)}
    return Case(
        label=FailureClass.DATA_CORRUPTION, why=why, situation=Situation(**situation | seen)
    )


def rejected(why: str, **seen: Any) -> Case:
    """A rule of the business said no to this one; others go through."""
    situation = {"group_events": 6, "handler_recent": recent(290, 2)}
    return Case(
        label=FailureClass.BUSINESS_REJECTION, why=why, situation=Situation(**situation | seen)
    )


def defect(why: str, **seen: Any) -> Case:
    """A bug: many events, one fingerprint."""
    situation = {"group_events": 163, "handler_recent": recent(0, 58)}
    return Case(label=FailureClass.CODE_DEFECT, why=why, situation=Situation(**situation | seen))


def rare_defect(why: str, **seen: Any) -> Case:
    """A bug that only few events reach."""
    return defect(why, **{"group_events": 4, "handler_recent": recent(402, 1)} | seen)


def other(label: FailureClass, why: str, **seen: Any) -> Case:
    """Any other class, by default one event among many that go through."""
    situation = {"group_events": 1, "handler_recent": recent(118, 1)}
    return Case(label=label, why=why, situation=Situation(**situation | seen))
