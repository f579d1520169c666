"""An engine's work on replay jobs, step by step within a transaction; `job_progress` decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    exists,
    func,
    or_,
    select,
    update,
)

from angzarr.adapters.sql.ledger.job_rows import (
    is_understood,
    item_from,
    job_from,
    lock_job,
    save_job,
    sent_edit,
    update_items,
)
from angzarr.adapters.sql.ledger.schema import replay_job_items, replay_jobs
from angzarr.adapters.sql.ledger.tables import ledger_entries
from angzarr.analysis.ledger.entry import Entry, Hold, Status, read_word
from angzarr.analysis.replay import job_progress
from angzarr.analysis.replay.job import (
    ItemState,
    JobItem,
    JobStatus,
    ReplayJob,
)
from angzarr.analysis.replay.job_progress import EntrySnapshot, ItemAnswer
from angzarr.analysis.replay.job_store import Begun, Noted

#: Entries that one step looks at, most of which may be refused.
LOOKED_AT: Final = 500

#: Leases of jobs that carry an edit end so much later than they do: engines of a release that
#: knows no edits, and would send the letter as it was, find such a job never free.
EDIT_LEASES: Final = timedelta(days=365_000)
_NEVER: Final = datetime.min.replace(tzinfo=UTC)

_jobs, _items, _entries = replay_jobs.c, replay_job_items.c, ledger_entries.c
_older = replay_jobs.alias("older")
_CARRIES_EDIT = func.coalesce(_jobs.edit, "") != ""


def take(
    connection: Connection, engine: str, now: datetime, until: datetime, limit: int
) -> list[ReplayJob]:
    """Take jobs that run, or have replays under way, and that no other engine has."""
    edits = _free(connection, _CARRIES_EDIT, engine, now + EDIT_LEASES, limit)
    plain = _free(connection, ~_CARRIES_EDIT, engine, now, limit)
    aged = [(_age(row, EDIT_LEASES), row) for row in edits]
    aged += [(_age(row, timedelta()), row) for row in plain]
    rows = [row for _, row in sorted(aged, key=itemgetter(0))[:limit]]
    ids = {row.id for row in rows}
    for some, leased_until in ((edits, until + EDIT_LEASES), (plain, until)):
        if taken := ids & {row.id for row in some}:
            held = {"engine": engine, "leased_until": leased_until}
            connection.execute(update(replay_jobs).where(_jobs.id.in_(taken)).values(**held))
    return [job_from(row) for row in rows]


def _free(
    connection: Connection, kind: ColumnElement[bool], engine: str, now: datetime, limit: int
) -> Sequence[Row[Any]]:
    """Jobs of one *kind* that need work and no other engine has, locked, longest ago first."""
    under_way = _jobs.sent > _jobs.handled + _jobs.failed + _jobs.unanswered
    free = or_(_jobs.engine == engine, _jobs.leased_until.is_(None), _jobs.leased_until <= now)
    running = and_(_jobs.status == JobStatus.RUNNING, ~_is_behind())
    known = _jobs.status.in_(sorted(JobStatus))
    wanted = select(replay_jobs).where(or_(running, and_(under_way, known)), free, kind)
    longest_ago = wanted.order_by(_jobs.leased_until.nulls_first(), _jobs.id).limit(limit)
    asked = longest_ago.with_for_update(skip_locked=True)
    newer: list[str] = []
    while True:  # what a newer release asks for is left to it
        rows = connection.execute(asked.where(_jobs.id.not_in(newer)) if newer else asked).all()
        if all(is_understood(row) for row in rows):
            return rows
        newer += [row.id for row in rows if not is_understood(row)]


def _age(row: Row[Any], later: timedelta) -> tuple[datetime, str]:
    leased_until = row.leased_until
    return (leased_until - later if leased_until else _NEVER), row.id


def older_of_group(connection: Connection, job: ReplayJob) -> str:
    """The id of a job that runs over the same group, or an empty string."""
    if not job.group:
        return ""
    same = (
        _jobs.fingerprint == job.group,
        _jobs.status == JobStatus.RUNNING,
        _jobs.id != job.id,
    )
    oldest = select(_jobs.id).where(*same).order_by(_jobs.created_at, _jobs.id).limit(1)
    return connection.scalar(oldest) or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSteps:
    """One step of an engine on one job, within one transaction."""

    connection: Connection
    job_id: str
    engine: str
    #: Whom the history names.
    by: str
    now: datetime

    def reconcile(self) -> ReplayJob | None:
        """Count the answers of replays under way: one question, as large as there are answers."""
        if (before := self._held()) is None:
            return None
        back = self._put_back(before, self._in_state(ItemState.BEGUN))
        update_items(self.connection, self.job_id, back)
        fresh = job_progress.noted(before, back, before.said, self.now)
        ended = [
            item_from(row)._replace(state=state)
            for row in self.connection.execute(_answered(self.job_id))
            if (state := job_progress.ending(_seen(row), row.replay))
        ]
        update_items(self.connection, self.job_id, ended)
        answers = [ItemAnswer(item.state, item.round) for item in ended]
        return self._save(before, job_progress.answered(fresh, answers, self.now))

    def begin_next(self, limit: int, most_replays: int) -> list[Begun]:
        """The replays that have begun; else begin more and refuse what changed."""
        if (before := self._held()) is None:
            return []
        began = self._in_state(ItemState.BEGUN)
        if not began and limit > 0 and before.status is JobStatus.RUNNING:
            began = self._begin(before, limit, most_replays)
        return [Begun(item.position, item.entry_id, item.replay) for item in began]

    def note(self, noted: Sequence[Noted], said: str) -> ReplayJob | None:
        """Note what became of replays that had begun."""
        if (before := self._held()) is None:
            return None
        news = {one.position: one for one in noted}
        known = [item for item in self._in_state(ItemState.BEGUN) if item.position in news]
        back = [item for item in known if news[item.position].state is ItemState.CHOSEN]
        items = self._put_back(before, back) + [
            item._replace(state=news[item.position].state, reason=news[item.position].reason)
            for item in known
            if item not in back
        ]
        update_items(self.connection, self.job_id, items)
        return self._save(before, job_progress.noted(before, items, said, self.now))

    def _put_back(self, job: ReplayJob, items: Sequence[JobItem]) -> list[JobItem]:
        """*items*, which had begun, as what their entries say became of them."""
        if not items:
            return []
        rows = self.connection.execute(_with_entries(self.job_id, ItemState.BEGUN))
        seen = {row.position: _seen(row) for row in rows}
        return [
            job_progress.put_back(
                item, seen[item.position], edit=job.edit, sent=self._sent(job, item)
            )
            for item in items
        ]

    def _sent(self, job: ReplayJob, item: JobItem) -> str:
        """The `JobEdit.sha256` of the letter that an entry's replay sent."""
        return sent_edit(self.connection, item.entry_id, item.replay) if job.edit else ""

    def _begin(self, before: ReplayJob, limit: int, most_replays: int) -> list[JobItem]:
        wanted = _with_entries(self.job_id, ItemState.CHOSEN).order_by(_items.position)
        rows = self.connection.execute(wanted.limit(LOOKED_AT)).all()
        began, refused = _sorted_out(rows, before, limit, most_replays)
        update_items(self.connection, self.job_id, [*began, *refused])
        after = job_progress.begun(before, len(began), self.now)
        self._save(before, job_progress.passed_over(after, len(refused), self.now))
        return began

    def _in_state(self, state: ItemState) -> list[JobItem]:
        this = (_items.job_id == self.job_id) & (_items.state == state)
        wanted = select(replay_job_items).where(this).order_by(_items.position)
        return [item_from(row) for row in self.connection.execute(wanted)]

    def _held(self) -> ReplayJob | None:
        """The job, locked, if it is this engine's."""
        row = lock_job(self.connection, self.job_id)
        return job_from(row) if row is not None and row.engine == self.engine else None

    def _save(self, before: ReplayJob, after: ReplayJob) -> ReplayJob:
        return save_job(self.connection, before, after, self.now, self.by)


def owners(connection: Connection, entries: Sequence[Entry]) -> Mapping[str, str]:
    """The jobs that have *entries*, or sent their last replays."""
    by_id = {entry.id: entry for entry in entries}
    wanted = (
        select(replay_job_items, _jobs.status)
        .join(replay_jobs, _jobs.id == _items.job_id)
        .where(_items.entry_id.in_(sorted(by_id)))
    )
    return {
        row.entry_id: row.job_id
        for row in connection.execute(wanted)
        if job_progress.owns(read_word(JobStatus, row.status), item_from(row), by_id[row.entry_id])
    }


def _sorted_out(
    rows: Sequence[Row[Any]], job: ReplayJob, limit: int, most_replays: int
) -> tuple[list[JobItem], list[JobItem]]:
    """The items that begin, with their numbers, and those that are refused."""
    began: list[JobItem] = []
    refused: list[JobItem] = []
    for row in rows:
        if len(began) == limit:
            break
        item, seen = item_from(row), _seen(row)
        chosen_as = read_word(Status, row.chosen_as)
        reason = job_progress.refusal(item, seen, chosen_as, most_replays, job.edit)
        if seen is None or reason:
            refused.append(item._replace(state=ItemState.REFUSED, reason=reason))
            continue
        began.append(job_progress.numbered(item, seen, job))
    return began, refused


def _is_behind() -> ColumnElement[bool]:
    """The condition that an older job runs over the same group."""
    older = _older.c
    return and_(
        _jobs.fingerprint != "",
        exists().where(
            older.fingerprint == _jobs.fingerprint,
            older.status == JobStatus.RUNNING,
            or_(
                older.created_at < _jobs.created_at,
                and_(older.created_at == _jobs.created_at, older.id < _jobs.id),
            ),
        ),
    )


def _answered(job_id: str) -> Select[Any]:
    """The question for the replays under way of which the ledger says more."""
    changed = or_(
        _entries.id.is_(None),
        _entries.status != Status.RETRYING,
        _entries.replays != _items.replay,
        _entries.letter_replay >= _items.replay,
        _entries.hold == Hold.LANE,
    )
    return _with_entries(job_id, ItemState.SENT).where(changed)


def _with_entries(job_id: str, state: ItemState) -> Select[Any]:
    """The question for items in *state* beside their entries, which may be gone."""
    return (
        select(
            replay_job_items,
            _entries.status.label("entry_status"),
            _entries.replays.label("entry_replays"),
            _entries.letter_replay,
            _entries.hold,
        )
        .select_from(replay_job_items.outerjoin(ledger_entries, _entries.id == _items.entry_id))
        .where(_items.job_id == job_id, _items.state == state)
    )


def _seen(row: Row[Any]) -> EntrySnapshot | None:
    if row.entry_status is None:
        return None
    status, parked = read_word(Status, row.entry_status), row.hold == Hold.LANE
    return EntrySnapshot(status, row.entry_replays, row.letter_replay, parked)
