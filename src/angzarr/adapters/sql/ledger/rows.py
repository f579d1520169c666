"""Rows of the ledger's tables to and from the values of `angzarr.analysis`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from sqlalchemy import Row

from angzarr.analysis.ledger.entry import Entry, FailureClass, HistoryLine, Hold, Status, read_word
from angzarr.analysis.ledger.failure import Failure, Unreadable
from angzarr.analysis.ledger.group import Group, GroupStatus
from angzarr.dead_letters.bounds import WIDEST
from angzarr.dead_letters.codec import decode, encode, raw_letter
from angzarr.errors import DecodeError
from angzarr.runtime.failures import is_machine_fault

_FIELDS = tuple(field.name for field in fields(Entry))


def entry_row(entry: Entry) -> dict[str, Any]:
    """Return *entry* as a row of ledger_entries."""
    return {name: getattr(entry, name) for name in _FIELDS}


def entry_from(row: Row[Any]) -> Entry:
    """Return a row of ledger_entries, which may have other columns besides, as an entry."""
    columns = row._mapping  # noqa: SLF001 - SQLAlchemy's public name for it
    values = {name: columns[name] for name in _FIELDS}
    values["status"] = read_word(Status, values["status"])
    if values["failure_class"] is not None:
        values["failure_class"] = read_word(FailureClass, values["failure_class"])
    if values["hold"] is not None:
        values["hold"] = read_word(Hold, values["hold"])
    return Entry(**values)


def letter_row(entry_id: str, failure: Failure) -> dict[str, Any]:
    """Return *failure* as a row of ledger_letters: a letter as JSON, which is read quickest."""
    if isinstance(failure, Unreadable):
        body, content_type = encode(failure.as_raw_letter())
        return {
            "entry_id": entry_id,
            "body": body,
            "content_type": content_type,
            "problem": failure.problem,
            "domain": failure.domain,
            "received_at": failure.received_at,
        }
    body, content_type = encode(failure)
    return {
        "entry_id": entry_id,
        "body": body,
        "content_type": content_type,
        "problem": None,
        "domain": failure.domain,
        "received_at": failure.sent_to_dlq_at,
    }


def failure_from(row: Row[Any]) -> Failure:
    """Return a row of ledger_letters as what was filed.

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
    """Return what was received, and what carried it."""
    try:
        kept = raw_letter(domain, body, content_type)
    except DecodeError:
        return {"raw": body, "content_type": content_type}
    return {"raw": kept.raw, "content_type": kept.content_type, "record": kept.record}


def line_row(entry_id: str, line: HistoryLine) -> dict[str, Any]:
    """Return *line* as a row of ledger_history."""
    return {
        "entry_id": entry_id,
        "at": line.at,
        "who": line.who,
        "what": line.what,
        "detail": line.detail,
        "letter_id": line.letter_id,
        "replay": line.replay,
    }


def line_from(row: Row[Any]) -> HistoryLine:
    """Return a row of ledger_history as a line."""
    return HistoryLine(
        at=row.at,
        who=row.who,
        what=row.what,
        detail=row.detail,
        letter_id=row.letter_id,
        replay=row.replay,
    )


def group_from(row: Row[Any], by_status: Mapping[str, int]) -> Group:
    """Return a row of ledger_groups as a group, with its entries counted by status."""
    values = dict(row._mapping)  # noqa: SLF001 - SQLAlchemy's public name for it
    values["status"] = read_word(GroupStatus, values["status"])
    if values["failure_class"] is not None:
        values["failure_class"] = read_word(FailureClass, values["failure_class"])
    return Group(**values, by_status=dict(by_status))


def group_line_from(row: Row[Any]) -> HistoryLine:
    """Return a row of ledger_group_history as a line."""
    return HistoryLine(at=row.at, who=row.who, what=row.what, detail=row.detail)
