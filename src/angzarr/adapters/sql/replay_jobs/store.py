"""Replay jobs in the ledger's database. Pruning removes a job's entries first, then the job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from sqlalchemy import Connection, and_, delete, exists, func, or_, select

from angzarr.adapters.sql.engine.statements import insert_into
from angzarr.adapters.sql.ledger.database import LedgerDatabase
from angzarr.adapters.sql.ledger.job_rows import (
    item_from,
    job_from,
    job_row,
    lock_job,
    read_edit,
    save_edit,
    save_job,
    tell,
)
from angzarr.adapters.sql.ledger.paging import begins_with
from angzarr.adapters.sql.ledger.queries import within_time
from angzarr.adapters.sql.ledger.schema import (
    replay_job_edits,
    replay_job_history,
    replay_job_items,
    replay_jobs,
)
from angzarr.adapters.sql.ledger.tables import LINE, ledger_entries, ledger_groups, line_from
from angzarr.adapters.sql.replay_jobs import steps
from angzarr.adapters.sql.replay_jobs.choice import EntryChoice, besides, would_choose
from angzarr.analysis.ledger.entry import Entry, HistoryLine
from angzarr.analysis.ledger.ledger import Cursor, read_cursor
from angzarr.analysis.replay import job_progress
from angzarr.analysis.replay.job import (
    Candidate,
    ItemState,
    JobEdit,
    JobItem,
    JobPage,
    JobStatus,
    ReplayJob,
    Selection,
)
from angzarr.analysis.replay.job_store import (
    Begun,
    JobCommands,
    JobRule,
    JobWork,
    Noted,
    ReplayJobs,
)
from angzarr.clock import Clock, SystemClock

_Answer = TypeVar("_Answer")
_jobs, _items = replay_jobs.c, replay_job_items.c


class SqlReplayJobs(JobCommands, ReplayJobs, JobWork):
    """Jobs in three tables; safe to use from threads."""

    def __init__(self, database: LedgerDatabase, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    # -- people --------------------------------------------------------------------------

    def would_choose(self, selection: Selection, *, limit: int) -> list[Candidate]:
        """The entries that a job would look at."""
        with within_time():
            return self._database.read(lambda one: would_choose(one, selection, limit))

    def open_job(self, job_id: str) -> ReplayJob | None:
        """A job."""
        wanted = select(replay_jobs).where(_jobs.id == job_id)
        row = self._database.read(lambda one: one.execute(wanted).one_or_none())
        return job_from(row) if row is not None else None

    def job_edit(self, job_id: str) -> JobEdit | None:
        """The edit of a job."""
        return self._database.read(lambda one: read_edit(one, job_id))

    def get_jobs(
        self,
        statuses: Sequence[JobStatus] = (),
        *,
        group: str | None = None,
        prefix: str = "",
        limit: int = 50,
        after: str = "",
    ) -> JobPage:
        """A page of jobs."""
        wanted = select(replay_jobs).order_by(_jobs.created_at.desc(), _jobs.id.desc())
        if statuses:
            wanted = wanted.where(_jobs.status.in_(sorted(statuses)))
        if group is not None:
            wanted = wanted.where(_jobs.fingerprint == group)
        if prefix:
            wanted = wanted.where(begins_with(_jobs.id, prefix))
        if after:
            at, job_id = read_cursor(after)
            same = and_(_jobs.created_at == at, _jobs.id < job_id)
            wanted = wanted.where(or_(_jobs.created_at < at, same))
        page = wanted.limit(limit + 1)
        jobs = self._database.read(lambda one: [job_from(row) for row in one.execute(page)])
        more = str(Cursor(jobs[limit - 1].created_at, jobs[limit - 1].id)) if jobs[limit:] else ""
        return JobPage(jobs=tuple(jobs[:limit]), next=more)

    def items(
        self, job_id: str, states: Sequence[ItemState] = (), *, limit: int = 100, after: int = 0
    ) -> list[JobItem]:
        """Entries of a job."""
        rows = replay_job_items.c
        wanted = select(replay_job_items).where(rows.job_id == job_id, rows.position > after)
        if states:
            wanted = wanted.where(rows.state.in_(sorted(states)))
        page = wanted.order_by(rows.position).limit(limit)
        return self._database.read(lambda one: [item_from(row) for row in one.execute(page)])

    def job_history(self, job_id: str) -> tuple[HistoryLine, ...]:
        """The history of a job."""
        rows = replay_job_history.c
        wanted = select(replay_job_history).where(rows.job_id == job_id).order_by(rows.number)
        return self._database.read(
            lambda one: tuple(line_from(row, LINE) for row in one.execute(wanted))
        )

    def close(self) -> None:
        """Close the pooled connections."""
        self._database.close()

    # -- engines -------------------------------------------------------------------------

    def take(self, engine: str, *, lease: timedelta, limit: int) -> list[ReplayJob]:
        """Take jobs, passing over those another engine is taking."""
        now = self._clock.now()
        return self._database.write(lambda one: steps.take(one, engine, now, now + lease, limit))

    def reconcile(self, job_id: str, engine: str, *, by: str = "") -> ReplayJob | None:
        """Count what the entries say."""
        return self._step(job_id, engine, by, steps.JobSteps.reconcile)

    def begin_next(
        self, job_id: str, engine: str, *, limit: int, most_replays: int, by: str = ""
    ) -> list[Begun]:
        """Begin the next replays of a job."""
        return self._step(job_id, engine, by, lambda one: one.begin_next(limit, most_replays))

    def note(
        self,
        job_id: str,
        engine: str,
        noted: Sequence[Noted],
        *,
        said: str = "",
        by: str = "",
    ) -> ReplayJob | None:
        """Note what was sent and refused."""
        return self._step(job_id, engine, by, lambda one: one.note(noted, said))

    def prune(self, before: datetime, *, limit: int) -> int:
        """Remove jobs that ended long ago."""
        return self._database.write(lambda one: prune(one, before, limit))

    def owners(self, entries: Sequence[Entry]) -> Mapping[str, str]:
        """The jobs that have *entries*."""
        if not entries:
            return {}
        return self._database.read(lambda connection: steps.owners(connection, entries))

    # ------------------------------------------------------------------------------------

    def _fill(
        self,
        fresh: ReplayJob,
        approval_over: int | None,
        edit: JobEdit | None,
        *,
        redirects_wait: bool,
    ) -> ReplayJob:
        return self._database.write(
            lambda one: self._begin(one, fresh, approval_over, edit, redirects_wait=redirects_wait)
        )

    def _begin(
        self,
        connection: Connection,
        fresh: ReplayJob,
        approval_over: int | None,
        edit: JobEdit | None,
        *,
        redirects_wait: bool,
    ) -> ReplayJob:
        if (row := lock_job(connection, fresh.id)) is not None:
            return job_from(row)
        if not self._store(connection, fresh):  # another begins it at this moment
            row = lock_job(connection, fresh.id)
            return job_from(row) if row is not None else fresh
        if edit is not None:
            _keep(connection, edit.entry_id)
        chosen = EntryChoice(connection=connection, job_id=fresh.id)
        chosen.choose(fresh.selection)
        job = job_progress.filled(
            fresh,
            total=chosen.total,
            handlers=chosen.handlers,
            elsewhere=(chosen.elsewhere, chosen.other_job),
            behind=steps.older_of_group(connection, fresh),
            approval_over=approval_over,
            besides=besides(connection, fresh, chosen.total, approval_over),
            edit=edit,
            redirects_wait=redirects_wait,
        )
        if not job.total:
            connection.execute(replay_jobs.delete().where(_jobs.id == job.id))
            return job
        if edit is not None:
            save_edit(connection, job.id, edit)
        tell(connection, job, [job_progress.first_line(job, edit)])
        row_now = job_row(job)
        if edit is not None:
            row_now["leased_until"] = fresh.created_at + steps.EDIT_LEASES
        connection.execute(replay_jobs.update().where(_jobs.id == job.id).values(**row_now))
        return job

    def _store(self, connection: Connection, job: ReplayJob) -> bool:
        """Write *job* unless it is there; one who does so at the same time is waited for."""
        new = insert_into(connection, replay_jobs).values(**job_row(job)).on_conflict_do_nothing()
        return connection.execute(new.returning(_jobs.id)).one_or_none() is not None

    def _step(
        self, job_id: str, engine: str, by: str, step: Callable[[steps.JobSteps], _Answer]
    ) -> _Answer:
        now = self._clock.now()
        return self._database.write(
            lambda connection: step(
                steps.JobSteps(
                    connection=connection, job_id=job_id, engine=engine, by=by or engine, now=now
                )
            )
        )

    def _mark(self, job_id: str, rule: JobRule, by: str) -> ReplayJob | None:
        now = self._clock.now()

        def mark(connection: Connection) -> ReplayJob | None:
            row = lock_job(connection, job_id)
            before = job_from(row) if row is not None else None
            after = rule(before, now, by) if before else None
            if before is None or after is None:
                return None
            return save_job(connection, before, after, now, by)

        return self._database.write(mark, once=True)


def _keep(connection: Connection, entry_id: str) -> None:
    """Have no other transaction remove an entry; one that is gone already will not be chosen."""
    wanted = select(ledger_entries.c.id).where(ledger_entries.c.id == entry_id)
    connection.execute(wanted.with_for_update(read=True, key_share=True))


def prune(connection: Connection, before: datetime, limit: int) -> int:
    """Remove up to *limit* rows of entries and jobs; jobs that others prune are passed over."""
    removed = 0
    while removed < limit and (job_id := _next(connection, before)):
        left = limit - removed
        entries = _remove_entries(connection, job_id, left)
        removed += entries
        if entries < left:
            _remove(connection, job_id)
            removed += 1
    return removed


def _next(connection: Connection, before: datetime) -> str | None:
    """The job that ended longest ago and may go, locked."""
    answered = _jobs.handled + _jobs.failed + _jobs.unanswered
    looked_after = exists().where(
        ledger_groups.c.fingerprint == _jobs.fingerprint, ledger_groups.c.open_entries > 0
    )
    gone = (_jobs.ended_at < before, _jobs.sent <= answered, ~looked_after)
    wanted = select(_jobs.id).where(*gone).order_by(_jobs.ended_at, _jobs.id).limit(1)
    found: str | None = connection.scalar(wanted.with_for_update(skip_locked=True, of=replay_jobs))
    return found


def _remove_entries(connection: Connection, job_id: str, limit: int) -> int:
    mine = _items.job_id == job_id
    first = connection.scalar(select(func.min(_items.position)).where(mine))
    if first is None:
        return 0
    some = delete(replay_job_items).where(mine, _items.position < first + limit)
    return connection.execute(some).rowcount


def _remove(connection: Connection, job_id: str) -> None:
    connection.execute(delete(replay_job_edits).where(replay_job_edits.c.job_id == job_id))
    connection.execute(delete(replay_job_history).where(replay_job_history.c.job_id == job_id))
    connection.execute(delete(replay_jobs).where(_jobs.id == job_id))
