"""The tables of entries, letters and groups (spec A2), and their rows.

Times are UTC; texts are valid for PostgreSQL. `migrations/ledger` leads to these tables: a change
here needs a revision there.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Row,
    String,
    Table,
    Text,
    UniqueConstraint,
    event,
    text,
)

from angzarr.adapters.sql.engine.postgresql import compress_by_lz4
from angzarr.adapters.sql.engine.schema import version_table
from angzarr.adapters.sql.ledger.column_types import Name, UtcTime, ValidText
from angzarr.analysis.ledger.entry import Entry, FailureClass, HistoryLine, Hold, Status, read_word
from angzarr.analysis.ledger.failure import Failure, Unreadable
from angzarr.analysis.ledger.group import Group, GroupStatus
from angzarr.dead_letters.bounds import WIDEST
from angzarr.dead_letters.codec import decode, encode, raw_letter
from angzarr.dead_letters.holding_queue import payload_hold
from angzarr.errors import DecodeError
from angzarr.runtime.failures import is_machine_fault

METADATA = MetaData()

#: The revision of the tables below.
HEAD: Final = "0022"

#: What an entry's status is as long as there is still something to do (`entry.OPEN`). Spelt out:
#: a database uses a partial index only where it sees that the condition holds.
OPEN_ONLY: Final = text("status IN ('escalated', 'failed', 'held', 'retrying', 'waiting')")
_WAKES: Final = text("wake_at IS NOT NULL")
_CLOSED: Final = text("resolved_at IS NOT NULL")
SOME_OPEN: Final = text("open_entries > 0")


def a_name(column: str) -> Column[str]:
    """A column of texts that are looked for."""
    return Column(column, Name, nullable=False)


def a_text(column: str) -> Column[str]:
    """A column of texts of any length."""
    return Column(column, ValidText, nullable=False)


def a_time(column: str, *, nullable: bool = True) -> Column[Any]:
    """A column of times."""
    return Column(column, UtcTime, nullable=nullable)


def a_number(column: str) -> Column[int]:
    """A column of small numbers."""
    return Column(column, Integer, nullable=False)


def a_count(column: str) -> Column[int]:
    """A column of numbers that may grow large."""
    return Column(column, BigInteger, nullable=False)


#: One row an entry; the columns are the fields of `Entry`, by name.
ledger_entries = Table(
    "ledger_entries",
    METADATA,
    Column("id", String(64), primary_key=True),
    a_name("handler_name"),
    a_name("event_id"),
    a_name("event_type"),
    a_name("domain"),
    a_name("tenant_id"),
    a_name("correlation_id"),
    Column("root", Name, nullable=False, server_default=""),
    Column("trace_id", Name, nullable=False, server_default=""),
    a_name("reason"),
    a_name("category"),
    a_name("error_type"),
    a_name("error_code"),
    a_text("error_message"),
    a_name("fingerprint"),
    a_name("component_type"),
    a_name("worker"),
    a_name("version"),
    a_number("retry_count"),
    a_number("occurrences"),
    a_time("first_failed_at", nullable=False),
    a_time("last_failed_at", nullable=False),
    a_name("letter_id"),
    a_number("letter_replay"),
    a_name("status"),
    Column("failure_class", Name),
    Column("hold", Name),
    a_text("evidence"),
    a_number("replays"),
    a_time("next_replay_at"),
    a_time("published_at"),
    a_time("wake_at"),
    a_text("resolved_by"),
    a_time("resolved_at"),
    a_number("revision"),
    Index("ledger_entries_by_time", "last_failed_at", "id"),
    Index("ledger_entries_by_status", "status", "last_failed_at", "id"),
    Index("ledger_entries_by_handler", "handler_name", "last_failed_at", "id"),
    Index("ledger_entries_by_fingerprint", "fingerprint", "last_failed_at", "id"),
    # With the tenant at its end: a rare handler's entries of one tenant are found in the index.
    Index("ledger_entries_of_group", "fingerprint", "status", "last_failed_at", "id", "tenant_id"),
    Index("ledger_entries_by_tenant_status", "tenant_id", "status", "last_failed_at", "id"),
    Index("ledger_entries_by_event", "event_id"),
    Index("ledger_entries_by_root", "root", "last_failed_at", "id"),
    Index("ledger_entries_by_correlation", "correlation_id", "last_failed_at", "id"),
    Index("ledger_entries_due", "status", "wake_at", postgresql_where=_WAKES, sqlite_where=_WAKES),
    Index(
        "ledger_entries_open_since",
        "first_failed_at",
        postgresql_where=OPEN_ONLY,
        sqlite_where=OPEN_ONLY,
    ),
    Index("ledger_entries_closed", "resolved_at", postgresql_where=_CLOSED, sqlite_where=_CLOSED),
)

#: The letter of each entry, apart from it: pages of entries need not read payloads.
ledger_letters = Table(
    "ledger_letters",
    METADATA,
    Column("entry_id", ForeignKey("ledger_entries.id", ondelete="CASCADE"), primary_key=True),
    Column("body", LargeBinary, nullable=False),
    a_text("content_type"),
    # Set where the letter could not be read; then `body` is what was received.
    Column("problem", ValidText),
    a_text("domain"),
    a_time("received_at"),
    # Its hold on its body in a payload store, if it has one there.
    Column("payload_uri", Text),
    Column("payload_holder", Text),
)

# A letter is larger, as a rule, than the 2 KB from which on PostgreSQL compresses.
event.listen(
    ledger_letters,
    "after_create",
    lambda table, connection, **_: compress_by_lz4(connection, table.name, "body"),
)

ledger_history = Table(
    "ledger_history",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("entry_id", ForeignKey("ledger_entries.id", ondelete="CASCADE"), nullable=False),
    a_time("at", nullable=False),
    a_text("who"),
    a_name("what"),
    a_text("detail"),
    Column("letter_id", Name, index=True),
    Column("replay", Integer),
    # Where it came from; of lines of revision 0021 nothing is known.
    Column("origin", Name),
    UniqueConstraint("entry_id", "letter_id", "replay", name="ledger_history_one_line_a_letter"),
)

#: One row a group; the columns are the fields of `Group`, by name, without `by_status`.
ledger_groups = Table(
    "ledger_groups",
    METADATA,
    Column("fingerprint", Name, primary_key=True),
    a_name("handler_name"),
    a_name("domain"),
    a_name("event_type"),
    a_name("reason"),
    a_name("error_type"),
    a_text("error_message"),
    Column("failure_class", Name),
    a_name("latest_entry_id"),
    a_time("first_failed_at", nullable=False),
    a_time("last_failed_at", nullable=False),
    a_count("entries"),
    a_count("open_entries"),
    a_count("occurrences"),
    a_name("status"),
    a_name("owner"),
    a_text("note"),
    a_time("muted_until"),
    a_number("revision"),
    Index("ledger_groups_by_time", "last_failed_at", "fingerprint"),
    Index(
        "ledger_groups_open",
        "last_failed_at",
        "fingerprint",
        postgresql_where=SOME_OPEN,
        sqlite_where=SOME_OPEN,
    ),
)

ledger_group_history = Table(
    "ledger_group_history",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column(
        "fingerprint",
        ForeignKey("ledger_groups.fingerprint", ondelete="CASCADE"),
        nullable=False,
        index=True,
    ),
    a_time("at", nullable=False),
    a_text("who"),
    a_name("what"),
    a_text("detail"),
)

#: How many entries there are of each `Kind`, kept in the transactions that change them. `key` is
#: the kind's hash: names may be too long for one index.
ledger_counts = Table(
    "ledger_counts",
    METADATA,
    Column("key", String(64), primary_key=True),
    Column("fingerprint", Name, nullable=False, index=True),
    a_name("domain"),
    a_name("handler_name"),
    a_name("event_type"),
    a_name("failure_class"),
    a_name("status"),
    a_count("entries"),
    a_count("occurrences"),
    a_count("replays"),
)

ledger_version = version_table("ledger", METADATA)


#: The columns of ledger_entries.
ENTRY: Final = tuple(field.name for field in fields(Entry))
_values: Final = operator.attrgetter(*ENTRY)
#: What the histories of groups and jobs have of a line, and what those of entries have besides.
LINE: Final = ("at", "who", "what", "detail")
ENTRY_LINE: Final = (*LINE, "letter_id", "replay", "origin")
_line_values: Final = operator.attrgetter(*LINE)
_entry_line_values: Final = operator.attrgetter(*ENTRY_LINE)


def entry_row(entry: Entry) -> dict[str, Any]:
    """*entry* as a row of ledger_entries."""
    return dict(zip(ENTRY, _values(entry), strict=True))


def entry_columns(entries: Sequence[Entry]) -> list[Sequence[Any]]:
    """*entries* as columns of ledger_entries, in the order of `ENTRY`."""
    return list(zip(*map(_values, entries), strict=True))


def entry_from(row: Row[Any]) -> Entry:
    """A row of ledger_entries, which may have other columns besides, as an entry."""
    columns = row._mapping  # noqa: SLF001 - SQLAlchemy's public name for it
    values = {name: columns[name] for name in ENTRY}
    values["status"] = read_word(Status, values["status"])
    if values["failure_class"] is not None:
        values["failure_class"] = read_word(FailureClass, values["failure_class"])
    if values["hold"] is not None:
        values["hold"] = read_word(Hold, values["hold"])
    return Entry(**values)


def letter_row(entry_id: str, failure: Failure) -> dict[str, Any]:
    """*failure* as a row of ledger_letters: a letter as JSON, which is read quickest."""
    if isinstance(failure, Unreadable):
        body, content_type = encode(failure.as_raw_letter())
        problem, received_at = failure.problem, failure.received_at
        hold = None
    else:
        body, content_type = encode(failure)
        problem, received_at = None, failure.sent_to_dlq_at
        hold = payload_hold(failure)
    return {
        "entry_id": entry_id,
        "body": body,
        "content_type": content_type,
        "problem": problem,
        "domain": failure.domain,
        "received_at": received_at,
        "payload_uri": hold and hold.uri,
        "payload_holder": hold and hold.holder,
    }


def failure_from(row: Row[Any]) -> Failure:
    """A row of ledger_letters as what was filed.

    Raises DecodeError for want of memory only: what cannot be read is raw bytes.
    """
    raw, problem = bytes(row.body), row.problem
    if problem is None:
        try:
            return decode(raw, row.content_type, WIDEST)
        except DecodeError as error:
            if is_machine_fault(error):
                raise
            problem = f"the ledger's copy of the letter cannot be read: {error}"
    return Unreadable(
        domain=row.domain,
        **_raw(row.domain, raw, row.content_type),
        problem=problem,
        received_at=row.received_at,
    )


def _raw(domain: str, body: bytes, content_type: str) -> dict[str, Any]:
    """The bytes that were received, and what carried them."""
    try:
        kept = raw_letter(domain, body, content_type)
    except DecodeError:
        return {"raw": body, "content_type": content_type}
    return {"raw": kept.raw, "content_type": kept.content_type, "record": kept.record}


def line_row(line: HistoryLine) -> dict[str, Any]:
    """*line* as columns of the history of a group or a job."""
    return dict(zip(LINE, _line_values(line), strict=True))


def line_columns(lines: Sequence[tuple[str, HistoryLine]]) -> list[Sequence[Any]]:
    """*lines*, each of the entry named first, as columns `entry_id` and `ENTRY_LINE`."""
    ids, told = zip(*lines, strict=True)
    return [ids, *zip(*map(_entry_line_values, told), strict=True)]


def line_from(row: Row[Any], names: Sequence[str] = ENTRY_LINE) -> HistoryLine:
    """A row of a history as a line."""
    return HistoryLine(**{name: getattr(row, name) for name in names})


def group_from(row: Row[Any], by_status: Mapping[str, int]) -> Group:
    """A row of ledger_groups as a group, with its entries counted by status."""
    values = dict(row._mapping)  # noqa: SLF001 - SQLAlchemy's public name for it
    values["status"] = read_word(GroupStatus, values["status"])
    if values["failure_class"] is not None:
        values["failure_class"] = read_word(FailureClass, values["failure_class"])
    return Group(**values, by_status=dict(by_status))
