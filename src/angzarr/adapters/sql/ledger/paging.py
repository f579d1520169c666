"""Paging: how rows are put in order and cut into pages, so that an index gives them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Select, and_, func, or_

from angzarr.analysis.ledger.ledger import Cursor


def newest_first(
    rows: Select[Any], at: ColumnElement[Any], name: ColumnElement[Any]
) -> Select[Any]:
    """Return *rows* in the order of pages."""
    return rows.order_by(at.desc(), name.desc())


def follows(
    at: ColumnElement[Any], name: ColumnElement[Any], behind: Cursor
) -> ColumnElement[bool]:
    """Return the condition that a row comes after *behind*."""
    return and_(
        at <= behind.last_failed_at,  # what an index can use
        or_(at < behind.last_failed_at, and_(at == behind.last_failed_at, name < behind.entry_id)),
    )


def begins_with(column: ColumnElement[str], beginning: str) -> ColumnElement[bool]:
    """Return the condition that *column* begins so, to the letter; no index serves it."""
    return func.substr(column, 1, len(beginning)) == beginning
