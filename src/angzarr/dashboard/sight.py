"""Sight: what a caller saw when a dry run answered; where that is others by now nothing is done.

The pages keep the same in their forms, by `question`: both doors refuse alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any, NamedTuple

from angzarr.analysis.ledger.entry import Entry
from angzarr.analysis.replay.bulk_actions import mark_of
from angzarr.analysis.replay.job import JobPlan, Selection
from angzarr.analysis.replay.job_view import AS_EVER, DryRun, dry_run
from angzarr.dashboard import many
from angzarr.dashboard.choice import Choice
from angzarr.dashboard.desk import Desk
from angzarr.dashboard.many import Asked, Result
from angzarr.dashboard.problem import Problem
from angzarr.dashboard.question import About, moment_of, question_of


class Sight(NamedTuple):
    """Which entries a dry run found: none of those that failed at `until` or later."""

    until: datetime
    #: The same for the same entries.
    mark: str


class Outcome(NamedTuple):
    """What became of many entries; after a dry run also what the request takes back as seen."""

    results: Sequence[Result]
    sight: Sight | None = None


def act_on_found(
    desk: Desk, about: About, asked: Asked, choice: Choice, sight: Sight | None
) -> Outcome:
    """Do a verb to the entries of a filter as a dry run found them.

    Raises Problem 428 where there was none, 412 where they are others by now; nothing is done then.
    """
    if asked.dry_run:
        question = question_of(desk, about, moment_of(desk, about.wanted, about.status))
        results = [Result(entry.id, why) for entry, why in question.found]
        return Outcome(results, Sight(question.until, question.mark))
    if sight is None:
        msg = "send `seen` as the dry run of this request returned it"
        raise Problem(428, "seen-missing", msg)

    def found() -> list[Entry]:
        until = min(sight.until, moment_of(desk, about.wanted, about.status))
        question = question_of(desk, about, until)
        _check(sight, question.mark)
        return [entry for entry, _ in question.found]

    return Outcome(many.act_once(desk, found, asked, choice))


def act_on_named(
    desk: Desk, entry_ids: Sequence[str], asked: Asked, choice: Choice, sight: Sight | None
) -> Outcome:
    """Do a verb to entries by id; with *sight* only where it still applies to the same of them."""
    ids = many.distinct(entry_ids, asked.verb)
    if asked.dry_run:
        told = _obstacles(desk, many.opened(desk, ids), asked)
        return Outcome(many.in_order(ids, told), Sight(desk.clock.now(), _mark(told)))

    def found() -> list[Entry]:
        entries = many.opened(desk, ids)
        if sight is not None:
            _check(sight, _mark(_obstacles(desk, entries, asked)))
        return entries

    return Outcome(many.in_order(ids, many.act_once(desk, found, asked, choice)))


def counted(desk: Desk, selection: Selection, plan: JobPlan = AS_EVER) -> tuple[DryRun, str]:
    """Return what a job would send, and the mark of that.

    Of more entries than a dry run looks at it is the mark of those, and that there are more.
    """
    told = dry_run(desk.jobs, desk.replayer, selection, desk.most_replays, plan)
    return told, f"{told.would_send}-{'more' if told.more else 'all'}-{told.mark}"


def see_job(desk: Desk, selection: Selection, plan: JobPlan) -> dict[str, Any]:
    """Return a job's dry run as a JSON object, with what its beginning takes back as seen."""
    until = _end(desk, selection)
    told, mark = counted(desk, _before(selection, until), plan)
    return asdict(told) | {"seen": Sight(until, mark)._asdict()}


def job_as_seen(
    desk: Desk,
    selection: Selection,
    plan: JobPlan,
    sight: Sight | None,
    id_of: Callable[[Selection], str],
) -> Selection:
    """Return *selection* without what failed since *sight*; raises Problem 412 as a verb does.

    *id_of* names the job of a selection: one that the same request has begun is not asked about.
    """
    if sight is None:
        return selection
    bounded = _before(selection, min(sight.until, _end(desk, selection)))
    if desk.jobs.open_job(id_of(bounded)) is None:
        _check(sight, counted(desk, bounded, plan)[1])
    return bounded


def _end(desk: Desk, selection: Selection) -> datetime:
    """Return the moment before which a job's entries failed."""
    now = moment_of(desk, selection.wanted, selection.status)
    return min(selection.wanted.until or now, now)


def _before(selection: Selection, until: datetime) -> Selection:
    if selection.entry_ids:  # named, whenever they failed
        return selection
    return replace(selection, wanted=replace(selection.wanted, until=until))


def _obstacles(desk: Desk, entries: Sequence[Entry], asked: Asked) -> list[Result]:
    return [Result(one.id, many.obstacle(desk, one, asked.verb)) for one in entries]


def _mark(told: Sequence[Result]) -> str:
    return mark_of(one.entry_id for one in told if not one.problem)


def _check(sight: Sight, mark: str) -> None:
    if mark != sight.mark:
        msg = "nothing was done: by now it is about other entries, ask for a dry run again"
        raise Problem(412, "stale", msg)
