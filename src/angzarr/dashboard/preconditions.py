"""Preconditions: what a caller saw when a dry run or a page asked; nothing else is acted on.

The API sends a `Precondition` back, a page keeps the same in its form: both refuse alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from angzarr.analysis.ledger.entry import Entry, Status
from angzarr.analysis.ledger.ledger import EntryFilter
from angzarr.analysis.ledger.operator_actions import Verb
from angzarr.analysis.replay.bulk_actions import choose_for, mark_of
from angzarr.analysis.replay.job import JobPlan, Selection
from angzarr.analysis.replay.job_view import AS_EVER, DryRun, dry_run
from angzarr.dashboard import actions
from angzarr.dashboard.actions import BulkRequest, BulkResult, Choice, most_for, obstacle
from angzarr.dashboard.problem import Problem
from angzarr.dashboard.services import Services


class About(NamedTuple):
    """Of which entries is asked, and what is to be done to them."""

    wanted: EntryFilter
    status: Status | None
    verb: Verb
    #: That many at most, those that failed last.
    limit: int


class Question(NamedTuple):
    """The entries of which a person is asked; none of them failed at `until` or later."""

    until: datetime
    #: Those that the verb applies to, and why it would not be done to them, or nothing.
    found: tuple[tuple[Entry, str], ...]
    #: They are as many as are done at once: there may be more.
    is_full: bool

    @property
    def entries(self) -> tuple[Entry, ...]:
        """To these it would be done."""
        return tuple(entry for entry, why in self.found if not why)

    @property
    def refused(self) -> tuple[BulkResult, ...]:
        """To these the verb applies, and still it would not be done."""
        return tuple(BulkResult(entry.id, why) for entry, why in self.found if why)

    @property
    def mark(self) -> str:
        """The same for the same entries, in whatever state they are."""
        return mark_of(entry.id for entry in self.entries)


def moment_of(services: Services, wanted: EntryFilter, status: Status | None = None) -> datetime:
    """The moment just behind now, and behind all that the filter finds by now.

    A worker's clock may be ahead (`transition.SKEW`), and so is what its entries say of their time.
    """
    newest = services.ledger.get_failed_events(wanted, status=status, limit=1).entries
    return (
        max([services.clock.now(), *(one.last_failed_at for one in newest)]) + timedelta.resolution
    )


def question_of(services: Services, about: About, until: datetime) -> Question:
    """The question *about* the entries that failed before *until*; changes nothing."""
    ends = min(until, about.wanted.until or until)
    most = most_for(about.verb, about.limit)
    found = choose_for(
        services.ledger, replace(about.wanted, until=ends), about.status, about.verb, most
    )
    told = tuple((entry, obstacle(services, entry, about.verb)) for entry in found)
    return Question(until=ends, found=told, is_full=len(found) == most)


class Precondition(NamedTuple):
    """Which entries a dry run found: none of those that failed at `until` or later."""

    until: datetime
    #: The same for the same entries.
    mark: str


class Outcome(NamedTuple):
    """What became of many entries; after a dry run also what the request takes back as seen."""

    results: Sequence[BulkResult]
    precondition: Precondition | None = None


def act_on_found(
    services: Services,
    about: About,
    asked: BulkRequest,
    choice: Choice,
    precondition: Precondition | None,
) -> Outcome:
    """Do a verb to the entries of a filter as a dry run found them.

    Raises Problem 428 where there was none, 412 where they are others by now; nothing is done then.
    """
    if asked.dry_run:
        question = question_of(services, about, moment_of(services, about.wanted, about.status))
        results = [BulkResult(entry.id, why) for entry, why in question.found]
        return Outcome(results, Precondition(question.until, question.mark))
    if precondition is None:
        msg = "send `seen` as the dry run of this request returned it"
        raise Problem(428, "seen-missing", msg)

    def found() -> list[Entry]:
        until = min(precondition.until, moment_of(services, about.wanted, about.status))
        question = question_of(services, about, until)
        _check(precondition, question.mark)
        return [entry for entry, _ in question.found]

    return Outcome(actions.act_once(services, found, asked, choice))


def act_on_named(
    services: Services,
    entry_ids: Sequence[str],
    asked: BulkRequest,
    choice: Choice,
    precondition: Precondition | None,
) -> Outcome:
    """Do a verb to entries by id; with *precondition* only if it still applies to the same ones."""
    ids = actions.distinct(entry_ids, asked.verb)
    if asked.dry_run:
        told = _obstacles(services, actions.opened(services, ids), asked)
        return Outcome(actions.in_order(ids, told), Precondition(services.clock.now(), _mark(told)))

    def found() -> list[Entry]:
        entries = actions.opened(services, ids)
        if precondition is not None:
            _check(precondition, _mark(_obstacles(services, entries, asked)))
        return entries

    return Outcome(actions.in_order(ids, actions.act_once(services, found, asked, choice)))


def counted(
    services: Services, selection: Selection, plan: JobPlan = AS_EVER
) -> tuple[DryRun, str]:
    """The dry run of a job, and its mark.

    Of more entries than a dry run looks at it is the mark of those, and that there are more.
    """
    told = dry_run(services.jobs, services.replayer, selection, services.most_replays, plan)
    return told, f"{told.would_send}-{'more' if told.more else 'all'}-{told.mark}"


def see_job(services: Services, selection: Selection, plan: JobPlan) -> dict[str, Any]:
    """A job's dry run as a JSON object, with what its beginning takes back as seen."""
    until = _end(services, selection)
    told, mark = counted(services, _before(selection, until), plan)
    return asdict(told) | {"seen": Precondition(until, mark)._asdict()}


def job_as_seen(
    services: Services,
    selection: Selection,
    plan: JobPlan,
    precondition: Precondition | None,
    id_of: Callable[[Selection], str],
) -> Selection:
    """*selection* without what failed since *precondition*; raises Problem 412 as a verb does.

    *id_of* names the job of a selection: one that the same request has begun is not asked about.
    """
    if precondition is None:
        return selection
    bounded = _before(selection, min(precondition.until, _end(services, selection)))
    if services.jobs.open_job(id_of(bounded)) is None:
        _check(precondition, counted(services, bounded, plan)[1])
    return bounded


def _end(services: Services, selection: Selection) -> datetime:
    """The moment before which a job's entries failed."""
    now = moment_of(services, selection.wanted, selection.status)
    return min(selection.wanted.until or now, now)


def _before(selection: Selection, until: datetime) -> Selection:
    if selection.entry_ids:  # named, whenever they failed
        return selection
    return replace(selection, wanted=replace(selection.wanted, until=until))


def _obstacles(
    services: Services, entries: Sequence[Entry], asked: BulkRequest
) -> list[BulkResult]:
    return [BulkResult(one.id, actions.obstacle(services, one, asked.verb)) for one in entries]


def _mark(told: Sequence[BulkResult]) -> str:
    return mark_of(one.entry_id for one in told if not one.problem)


def _check(precondition: Precondition, mark: str) -> None:
    if mark != precondition.mark:
        msg = "nothing was done: by now it is about other entries, ask for a dry run again"
        raise Problem(412, "stale", msg)
