"""The choice of a replay job's entries, written down in slices within one transaction.

Entries are only read: others who work on them do not wait. A slice is small enough for the time
that a statement may take, whatever the size of the whole.

`besides` sums the entries of a person's other jobs, of which `job_limits` says which count. Only
names and sums leave the database.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    ScalarSelect,
    Select,
    Tuple,
    and_,
    case,
    func,
    insert,
    literal,
    or_,
    select,
    tuple_,
)

from angzarr.adapters.sql.engine.statements import takes_lock
from angzarr.adapters.sql.ledger.queries import conditions_of
from angzarr.adapters.sql.ledger.schema import replay_job_items, replay_jobs
from angzarr.adapters.sql.ledger.tables import entry_from, ledger_entries
from angzarr.analysis.ledger.transition import REPLAYABLE
from angzarr.analysis.replay.job import (
    AUTOMATIC,
    ENDED,
    ENDED_STATES,
    Candidate,
    ItemState,
    JobStatus,
    ReplayJob,
    Selection,
)
from angzarr.analysis.replay.job_limits import ADDED_UP, others_matter, same_person
from angzarr.analysis.replay.job_progress import CHOSEN_BY_DEFAULT
from angzarr.errors import LedgerUnavailable

#: Entries chosen by one statement.
SLICE: Final = 20_000
#: Handlers whose breakers are watched, at most.
MOST_HANDLERS: Final = 100
#: Ids that one statement names: what SQLite and PostgreSQL take with ease.
_NAMED: Final = 500
#: In PostgreSQL's space of advisory locks: entries are chosen by one transaction at a time.
_CHOOSE_LOCK: Final = int.from_bytes(b"anzrjobs"[:7], "big")

#: Seconds to wait for another transaction that chooses.
_PATIENCE: Final = 30.0

_entries, _items, _jobs = ledger_entries.c, replay_job_items.c, replay_jobs.c


class _Slice(NamedTuple):
    """A run of entries, and the last of it where another follows."""

    conditions: list[ColumnElement[bool]]
    last: Row[Any] | None


@dataclass(slots=True, kw_only=True)
class EntryChoice:
    """The choice of one job's entries in one transaction, and what was chosen so far."""

    connection: Connection
    job_id: str
    #: All other unfinished jobs, whose entries are not chosen.
    others: Sequence[str] = ()
    total: int = 0
    #: Entries that fit and belong to another unfinished job, and one such job.
    elsewhere: int = 0
    other_job: str = ""
    handlers: set[str] = field(default_factory=set)

    def choose(self, selection: Selection) -> None:
        """Write down the entries of *selection*, oldest failure first."""
        if self.connection.dialect.name == "postgresql":
            _choose_alone(self.connection)
        self.others = _unfinished(self.connection, self.job_id)
        looked_at = 0
        for conditions in _parts(self.connection, selection):
            last: Row[Any] | None = None
            while (size := min(SLICE, (selection.limit or SLICE + looked_at) - looked_at)) > 0:
                one = _slice(self.connection, conditions, last, size)
                looked_at += self._take(one, size, looked_at)
                if (last := one.last) is None:
                    break

    def _take(self, one: _Slice, size: int, base: int) -> int:
        """Write one slice down; return how many entries it has."""
        written = self._write(one, base)
        if elsewhere := self._elsewhere(one):
            self.elsewhere += elsewhere
            self.other_job = self.other_job or _owner_of(self.connection, one, self.others)
        self.total += written
        return size if one.last is not None else written + elsewhere

    def _write(self, one: _Slice, base: int) -> int:
        free = [*one.conditions, *([_claims(self.others) == 0] if self.others else [])]
        if len(self.handlers) < MOST_HANDLERS:
            names = select(_entries.handler_name).where(*free).distinct().limit(MOST_HANDLERS)
            self.handlers |= set(self.connection.scalars(names))
        number = func.row_number().over(order_by=(_entries.last_failed_at, _entries.id))
        rows = select(
            literal(self.job_id), number + base, _entries.id, _entries.status,
            literal(ItemState.CHOSEN.value), _entries.replays + 1, literal(0), literal(""),
        ).where(*free)  # fmt: skip
        columns = [column.name for column in replay_job_items.c]
        write = insert(replay_job_items).from_select(columns, rows)
        counted = write.execution_options(preserve_rowcount=True)
        return self.connection.execute(counted).rowcount

    def _elsewhere(self, one: _Slice) -> int:
        if not self.others:
            return 0
        taken = [*one.conditions, _claims(self.others) > 0]
        count = select(func.count()).select_from(ledger_entries).where(*taken)
        return self.connection.scalar(count) or 0


def _choose_alone(connection: Connection) -> None:
    """Wait for another transaction that chooses; raises LedgerUnavailable after a while."""
    if not takes_lock(connection, _CHOOSE_LOCK, _PATIENCE):
        msg = "another replay job is being filled, which takes its time: try again later"
        raise LedgerUnavailable(msg)


def would_choose(connection: Connection, selection: Selection, limit: int) -> list[Candidate]:
    """The first *limit* that `EntryChoice` looks at for *selection*, as it does."""
    others = _unfinished(connection)
    other = _owner(_entries.id, others).correlate(ledger_entries) if others else literal("")
    entries = _in_order(select(ledger_entries, other.label("other_job")))
    left = min(limit, selection.limit or limit)
    found: list[Candidate] = []
    for conditions in _parts(connection, selection):
        # By id first: SQLite would sort whole rows, and ask for the job of each.
        first = _in_order(select(_entries.id).where(*conditions)).limit(left - len(found))
        ids = first.subquery("first")
        rows = connection.execute(entries.join(ids, ids.c.id == _entries.id))
        found += [Candidate(entry_from(row), row.other_job or "") for row in rows]
        if len(found) == left:
            break
    return found


def _unfinished(connection: Connection, besides: str = "") -> Sequence[str]:
    """All unfinished jobs but for one."""
    jobs = select(_jobs.id).where(_jobs.status.not_in(sorted(ENDED)), _jobs.id != besides)
    return connection.scalars(jobs).all()


def _parts(connection: Connection, selection: Selection) -> list[list[ColumnElement[bool]]]:
    """The conditions of the selection; many ids are asked for in parts, oldest first."""
    if not (ids := selection.entry_ids):
        wanted = conditions_of(connection, _entries, selection.wanted, None)
        return [[*wanted, _in_status(selection)]]
    able = _entries.status.in_(sorted(REPLAYABLE))
    distinct = list(dict.fromkeys(ids))
    if len(distinct) > _NAMED:
        distinct = _oldest_first(connection, distinct)
    return [[_entries.id.in_(part), able] for part in _some(distinct)]


def _oldest_first(connection: Connection, ids: Sequence[str]) -> list[str]:
    """Those of *ids* that there are, the one that failed longest ago first."""
    places = select(_entries.last_failed_at, _entries.id)
    found = (connection.execute(places.where(_entries.id.in_(part))) for part in _some(ids))
    return [entry_id for _, entry_id in sorted((at, one) for rows in found for at, one in rows)]


def _some(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (ids[at : at + _NAMED] for at in range(0, len(ids), _NAMED))


def _in_status(selection: Selection) -> ColumnElement[bool]:
    if selection.status is None:
        return _entries.status.in_(sorted(CHOSEN_BY_DEFAULT))
    return and_(_entries.status == selection.status, _entries.status.in_(sorted(REPLAYABLE)))


def _slice(
    connection: Connection, conditions: list[ColumnElement[bool]], after: Row[Any] | None, size: int
) -> _Slice:
    """The next *size* entries behind *after* as conditions."""
    behind = [*conditions] if after is None else [*conditions, _follows(after)]
    end = _in_order(select(_entries.last_failed_at, _entries.id).where(*behind))
    last = connection.execute(end.offset(size - 1).limit(1)).one_or_none()
    if last is not None:
        behind.append(tuple_(_entries.last_failed_at, _entries.id) <= _place(last))
    return _Slice(behind, last)


def _claims(others: Sequence[str]) -> ScalarSelect[int]:
    """The number of the jobs *others* that have an entry: asked row by row, by an index.

    As a join it would be planned by what the database believes of rows that it has not counted yet,
    and may take hours.
    """
    mine = (_items.entry_id == _entries.id, _items.state.not_in(sorted(ENDED_STATES)))
    claims = select(func.count()).select_from(replay_job_items)
    return (
        claims.where(*mine, _items.job_id.in_(others)).correlate(ledger_entries).scalar_subquery()
    )


def _owner_of(connection: Connection, one: _Slice, others: Sequence[str]) -> str:
    taken = select(_entries.id).where(*one.conditions, _claims(others) > 0).limit(1)
    owner = _owner(literal(connection.scalar(taken)), others)
    return connection.scalar(select(owner)) or ""


def _owner(entry_id: ColumnElement[str], others: Sequence[str]) -> ScalarSelect[str]:
    """One of *others* that has an entry."""
    owner = select(_items.job_id).where(_items.entry_id == entry_id, _items.job_id.in_(others))
    return owner.where(_items.state.not_in(sorted(ENDED_STATES))).limit(1).scalar_subquery()


def _in_order(wanted: Select[Any]) -> Select[Any]:
    return wanted.order_by(_entries.last_failed_at, _entries.id)


def _follows(row: Row[Any]) -> ColumnElement[bool]:
    return tuple_(_entries.last_failed_at, _entries.id) > _place(row)


def _place(row: Row[Any]) -> Tuple:
    at = literal(row.last_failed_at, _entries.last_failed_at.type)
    return tuple_(at, literal(row.id, _entries.id.type))


_UNDER_WAY: Final = _jobs.status.not_in(sorted(ENDED | {JobStatus.PROPOSED}))


def besides(connection: Connection, job: ReplayJob, total: int, approval_over: int | None) -> int:
    """The entries that count beside *job* of *total*; nothing is read where it does not matter."""
    if not others_matter(total, approval_over):
        return 0
    entries = case((_jobs.ended_at.is_(None), _jobs.total - _jobs.refused), else_=_jobs.sent)
    others = (_jobs.approved_by == "", _jobs.status != JobStatus.PROPOSED, _jobs.id != job.id)
    sums = select(_jobs.created_by, func.sum(entries)).where(*others, _counts(job))
    found = connection.execute(sums.group_by(_jobs.created_by))
    return sum(int(count) for name, count in found if same_person(name, job.created_by))


def _counts(job: ReplayJob) -> ColumnElement[bool]:
    automatic = _jobs.created_by == AUTOMATIC
    if job.created_by == AUTOMATIC:
        return and_(automatic, _UNDER_WAY, _jobs.fingerprint == job.group)
    return and_(~automatic, or_(_UNDER_WAY, _jobs.ended_at > job.created_at - ADDED_UP))
