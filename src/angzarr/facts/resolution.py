"""Which fact resolved an error fact, and which costs are of failed runs. Pure.

Facts are never changed, so both are found when they are asked for.

A fact that names an error fact in `resolves` resolved it. A fact that handles or skips an event, or
that names one of its error facts, ends the event for its handler: it resolved every error fact of
both until then. A person who brings a skipped dead letter back opens both again: what ended them
before counts no more. An error fact resolves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from angzarr.facts.fact import APPENDED_BY, Fact

ERROR: Final = "error"
LIFECYCLE: Final = "lifecycle"
COST: Final = "cost"
#: Of lifecycle facts, the subtypes by which an event ends well for its handler.
ENDED_WELL: Final = ("handled", "skipped")

#: The subtype of a fact that opens the error that it names, and its event, again.
REOPENED: Final = "entry_restored"

#: The subtype of a fact that says that an act begins; the fact that ends it names it.
ACT_BEGUN: Final = "act_begun"
#: The one by which a person ends an act that has no end of its own, having looked after it.
ACT_CHECKED: Final = "act_checked"

#: Outcomes, as error facts say them, of runs that failed.
FAILED_RUNS: Final = ("retried", "dead_lettered")
#: What tells the runs of one event and handler from each other, in the data of facts.
OF_RUN: Final = ("retry_attempt", "replay")
#: The cause of a failure that names none.
UNKNOWN_CODE: Final = "UNKNOWN"
#: The id of an event, and the handler.
Work: TypeAlias = tuple[str, str | None]


class WorkEnding(NamedTuple):
    """A fact that ended the *work*."""

    work: Work
    fact: Fact


def letter_fact_id(letter: str) -> str:
    """The id of the error fact of the dead letter with this id."""
    return f"{letter}:dead_lettered"


def is_run(fact: Fact) -> bool:
    """True if *fact* tells how a run of a handler ended: with an error, or well."""
    return fact.type == ERROR or ends_well(fact)


def ends_well(fact: Fact) -> bool:
    """True if *fact* says that an event was handled or skipped."""
    return fact.type == LIFECYCLE and fact.subtype in ENDED_WELL


def work_of(fact: Fact) -> Work | None:
    """The event and handler of *fact*; None: it is about no event."""
    return None if fact.event_id is None else (fact.event_id, fact.tool_id)


def failures_of(costs: Iterable[Fact], errors: Iterable[Fact]) -> dict[str, Fact]:
    """Of each cost fact among *costs* whose run failed: the error fact of that run, by its id."""
    failed = {
        run: one
        for one in errors
        if one.data.get("outcome") in FAILED_RUNS and (run := _run_of(one)) is not None
    }
    found = {}
    for one in costs:
        run = _run_of(one) if one.type == COST else None
        if run in failed:
            found[one.id] = failed[run]
    return found


def cause_of(error: Fact | None) -> str | None:
    """The error code of a failed run; None: it did not fail."""
    return None if error is None else str(error.data.get("error_code") or UNKNOWN_CODE)


def _run_of(fact: Fact) -> tuple[object, ...] | None:
    """What names the run of *fact*; None: it is of no run."""
    run = [fact.data.get(name) for name in OF_RUN]
    if fact.event_id is None or not all(isinstance(one, int) for one in run):
        return None
    return (fact.event_id, fact.tool_id, *run)


def resolves_any(fact: Fact) -> bool:
    """True if *fact* can have resolved others."""
    return ends_well(fact) or (fact.resolves is not None and fact.type != ERROR)


def endings_of(fact: Fact, named: Fact | None = None) -> list[WorkEnding]:
    """The work that *fact* ended; *named* is the error fact that it resolves, where it is known."""
    if not resolves_any(fact):
        return []
    works = [work_of(fact), work_of(named) if named is not None else None]
    return [WorkEnding(work, fact) for work in dict.fromkeys(works) if work is not None]


def resolve(
    errors: Iterable[Fact], naming: Sequence[Fact], endings: Sequence[WorkEnding]
) -> dict[str, Fact]:
    """The fact that resolved each error fact among *errors*, by its id; not all are resolved.

    *naming* are the facts that name some of them, *endings* those of their work, both oldest
    first and then as they arrived. The first that names one counts, else the first ending that is
    not older than it; of those before it was opened again none counts.
    """
    named = _named(naming)
    found = {}
    for error in errors:
        if error.type != ERROR:
            continue
        fact = named.get(error.id) or _end(error, endings)
        if fact is not None:
            found[error.id] = fact
    return found


def begins_act(fact: Fact) -> bool:
    """True if *fact* says that an act begins."""
    return fact.type == LIFECYCLE and fact.subtype == ACT_BEGUN


def ends_of(begun: Iterable[Fact], naming: Sequence[Fact]) -> dict[str, Fact]:
    """The fact that ended each act that *begun* begin, by the id of that; *naming*: oldest first.

    Its own end counts. Of those that a caller appended over HTTP only `act_checked` does, of an act
    that has no end of its own.
    """
    found: dict[str, Fact] = {}
    for beginning in begun:
        ends = [one for one in naming if _can_end(one, beginning)]
        own = (one for one in ends if APPENDED_BY not in one.data and one.at >= beginning.at)
        checked = (one for one in ends if one.subtype == ACT_CHECKED)
        if (end := next(own, None) or next(checked, None)) is not None:
            found[beginning.id] = end
    return found


def _can_end(fact: Fact, begun: Fact) -> bool:
    names_it = fact.resolves == begun.id and fact.id != begun.id
    return names_it and fact.type == LIFECYCLE


def _named(naming: Sequence[Fact]) -> dict[str | None, Fact]:
    """The first fact that names each error, and after one that opens it again the next."""
    found: dict[str | None, Fact] = {}
    for one in naming:
        if one.subtype == REOPENED:
            found.pop(one.resolves, None)
        elif one.id != one.resolves:
            found.setdefault(one.resolves, one)
    return found


def _end(error: Fact, endings: Sequence[WorkEnding]) -> Fact | None:
    work, found = work_of(error), None
    for one in endings:
        if work is None or one.work != work or one.fact.at < error.at or one.fact.id == error.id:
            continue
        if one.fact.subtype == REOPENED:
            found = None
        elif found is None:
            found = one.fact
    return found
