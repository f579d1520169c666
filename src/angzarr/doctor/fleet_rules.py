"""What a fleet loses: mixed releases, handlers without a worker, what no one reads or moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from angzarr.doctor.finding import Area, Check, Finding, Severity
from angzarr.doctor.rabbitmq_rules import UNREAD
from angzarr.fleet import Member

#: Names that one finding tells.
_NAMED: Final = 5
#: A fact is moved within seconds; a relay that a worker of the past held is free after a minute.
_FACTS_LATE: Final = timedelta(minutes=2)
_FLEET, _WARNING = Area.FLEET, Severity.WARNING

NOBODY: Final = Check(
    id="no-workers",
    area=_FLEET,
    severity=_WARNING,
    looks_at="the register of the fleet",
    why="no worker runs: messages wait",
)
SKEW: Final = Check(
    id="release-skew",
    area=_FLEET,
    severity=_WARNING,
    looks_at="releases of all living workers",
    why="a message that one release writes another one may not understand; it becomes a letter",
)
UNNAMED: Final = Check(
    id="release-unnamed",
    area=_FLEET,
    severity=Severity.INFO,
    looks_at="ANGZARR_RELEASE of all living workers",
    why="it is unknown which letters a new release has fixed, so they are not replayed for it",
)
NOWHERE: Final = Check(
    id="handler-nowhere",
    area=_FLEET,
    severity=_WARNING,
    looks_at="handlers of this app against those of living workers",
    why="messages for the handler wait in a queue, or become letters in a worker that lacks it",
)
UNKNOWN: Final = Check(
    id="handler-unknown",
    area=_FLEET,
    severity=_WARNING,
    looks_at="handlers of living workers against those of this app",
    why="an analysis worker of this release knows no such task and holds its letters back",
)
HISTORY: Final = Check(
    id="ordered-over-history",
    area=_FLEET,
    severity=_WARNING,
    looks_at="ordered handlers that have handled nothing, and event books that have a history",
    why="its lanes begin at the first event of each aggregate: what is published now is parked"
    " behind all that was before",
)
FACTS_WAIT: Final = Check(
    id="facts-waiting",
    area=_FLEET,
    severity=_WARNING,
    looks_at="the oldest fact that waits beside the claims for facts.url",
    why="facts of what happened are not in the database yet; beyond facts.most_waiting the oldest"
    " are dropped",
)
ACTS_WAIT: Final = Check(
    id="acts-waiting",
    area=_FLEET,
    severity=_WARNING,
    looks_at="the oldest fact of an act that waits beside the ledger",
    why="no one sees yet who did it; beyond facts.most_waiting the oldest are dropped",
)
UNENDED: Final = Check(
    id="acts-unended",
    area=_FLEET,
    severity=_WARNING,
    looks_at="acts of the last seven days that began more than an hour ago and have no end",
    why=(
        "their process is still at it, was killed, or could not write their end: they may be done,"
        " half done or not done"
    ),
)
CHECKS: Final = (NOBODY, SKEW, UNNAMED, NOWHERE, UNKNOWN, HISTORY, FACTS_WAIT, ACTS_WAIT, UNENDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSeen:
    """Who runs what, and what this app would run."""

    at: str
    members: Sequence[Member] = ()
    #: Tasks of this app, with the queues that they are sent to.
    handlers: Mapping[str, str] = field(default_factory=dict)
    #: How many messages wait in which queue, where that is known.
    waiting: Mapping[str, int] = field(default_factory=dict)
    #: Ordered handlers that have handled nothing, with the events that are in their books.
    over_history: Mapping[str, int] = field(default_factory=dict)
    #: For how long the oldest fact has waited for its database; None: none waits.
    facts_wait: timedelta | None = None
    #: The same of facts of acts on the ledger.
    acts_wait: timedelta | None = None
    #: Acts that began long ago and have no end, each in words.
    unended: Sequence[str] = ()


def findings(seen: FleetSeen) -> Iterator[Finding]:
    """The findings about a fleet."""
    yield from _facts(seen)
    if not seen.members:
        yield NOBODY.found(seen.at, "no worker is registered", "start one: angzarr -A … worker")
        return
    yield from _releases(seen)
    yield from _handlers(seen)
    yield from _unread(seen)


def _releases(seen: FleetSeen) -> Iterator[Finding]:
    counts = Counter(member.release for member in seen.members)
    if unnamed := counts.pop("", 0):
        yield UNNAMED.found(
            seen.at,
            f"{unnamed} of {len(seen.members)} workers name none",
            "set ANGZARR_RELEASE to the image's tag",
        )
    if len(counts) > 1:
        told = ", ".join(f"{name}: {number}" for name, number in sorted(counts.items()))
        yield SKEW.found(
            seen.at, f"workers by release: {told}", "end the roll-out: angzarr fleet releases"
        )


def _handlers(seen: FleetSeen) -> Iterator[Finding]:
    running = {name for member in seen.members for name in member.handlers}
    if nowhere := sorted(seen.handlers.keys() - running):
        yield NOWHERE.found(
            seen.at,
            f"no worker runs {_some(nowhere)}",
            "roll the release out that has them, or import their module in the workers",
        )
    if unknown := sorted(running - seen.handlers.keys()):
        yield UNKNOWN.found(
            seen.at,
            f"this app does not have {_some(unknown)}",
            "let the analysis worker and this check run the workers' release (and their app)",
        )


def _unread(seen: FleetSeen) -> Iterator[Finding]:
    read = {queue for member in seen.members for queue in member.queues}
    for queue, number in sorted(seen.waiting.items()):
        if number and queue not in read:
            yield UNREAD.found(
                f"{seen.at}, queue {queue}",
                f"{number} messages, no worker consumes it",
                f"start a worker for it: angzarr -A … worker -Q {queue}",
            )


def _facts(seen: FleetSeen) -> Iterator[Finding]:
    for_facts = (
        "look for facts_delayed in the workers' logs, and see that their facts.url answers; if"
        " no worker has it any more, start one that does"
    )
    for_acts = (
        "start an analysis worker (angzarr -A … dlq analyze), which moves them; if one runs,"
        " look for facts_delayed in its log, and see that its facts.url answers"
    )
    both = ((FACTS_WAIT, seen.facts_wait, for_facts), (ACTS_WAIT, seen.acts_wait, for_acts))
    for check, wait, change in both:
        if wait is not None and wait > _FACTS_LATE:
            told = f"the oldest has waited for {wait.total_seconds() / 60:.0f} min"
            yield check.found(seen.at, told, change)


def unended(seen: FleetSeen) -> Iterator[Finding]:
    """The acts that have no end."""
    if seen.unended:
        yield UNENDED.found(
            seen.at,
            f"{len(seen.unended)} acts have no end: {_some(seen.unended)}",
            "see of each whether it was done, and do it again if not: angzarr fact list --subtype"
            " act_begun; a fact that names it in resolves ends it (POST /api/v1/facts)",
        )


def over_history(seen: FleetSeen) -> Iterator[Finding]:
    """The ordered handlers that begin at the start of what was long before them."""
    for name, events in sorted(seen.over_history.items()):
        yield HISTORY.found(
            f"{seen.at}, {name}",
            f"it has handled nothing, and {events} events or more are in the books before",
            f"leave them: angzarr projection begin {name} --at-present; or handle them: angzarr"
            f" projection rebuild {name}",
        )


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
