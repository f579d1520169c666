"""Export: entries of the ledger as lines, one after the other, however many there are (A5).

An entry stands there as `dlq list --json` tells it, a letter as it lies in the ledger: redacted and
sealed as it was when it was filed.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import chain, islice
from typing import Any, Final

from angzarr.analysis.ledger.entry import Entry, Failure, Unreadable
from angzarr.analysis.ledger.entry_json import FIELDS, entry_json, json_text
from angzarr.analysis.ledger.ledger import Ledger
from angzarr.dead_letters.codec import JSON_CONTENT_TYPE, encode
from angzarr.dead_letters.lines import to_line
from angzarr.dead_letters.queue import Receipt
from angzarr.runtime.text import printable


class Format(StrEnum):
    """How lines are written."""

    JSONL = "jsonl"
    CSV = "csv"


#: Letters that are in memory at a time, and their bytes together; a larger one is there alone.
_AT_ONCE: Final = 20
_BYTES_AT_ONCE: Final = 1024 * 1024
#: A spreadsheet takes a cell that begins with one of these for a formula (OWASP, CSV Injection).
_FORMULA: Final = frozenset("=+-@|%\t\r\n\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}"
                            "\N{FULLWIDTH HYPHEN-MINUS}\N{FULLWIDTH COMMERCIAL AT}")  # fmt: skip
#: Before a cell it says: this is text.
_TEXT_MARK: Final = "'"


def entry_lines(entries: Iterable[Entry], form: Format) -> Iterator[bytes]:
    """Return *entries* as lines with their ends; CSV has its columns first."""
    if form is Format.CSV:
        return chain([_row(FIELDS)], (_cells(entry) for entry in entries))
    return (json_text(entry_json(entry)).encode() + b"\n" for entry in entries)


def letter_lines(ledger: Ledger, entries: Iterable[Entry]) -> Iterator[bytes]:
    """Return the letters of *entries* as lines that `dlq import` reads.

    An entry that was removed meanwhile has none any more.
    """
    left = iter(entries)
    while some := list(islice(left, _AT_ONCE)):
        sizes = ledger.letter_sizes([entry.id for entry in some])
        for few in _within([entry.id for entry in some], sizes):
            yield from _lines(ledger, few)


def _lines(ledger: Ledger, entry_ids: Sequence[str]) -> Iterator[bytes]:
    details = dict(ledger.open_all(entry_ids))
    for entry_id in entry_ids:
        if (detail := details.pop(entry_id, None)) is not None:
            yield to_line(_receipt(detail.failure))


def _within(entry_ids: Sequence[str], sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Return *entry_ids* in parts of so many bytes, a larger letter in a part of its own."""
    few: list[str] = []
    held = 0
    for entry_id in entry_ids:
        size = sizes.get(entry_id, 0)
        if few and held + size > _BYTES_AT_ONCE:
            yield few
            few, held = [], 0
        few.append(entry_id)
        held += size
    if few:
        yield few


def _receipt(failure: Failure) -> Receipt:
    if isinstance(failure, Unreadable):
        return Receipt(
            domain=failure.domain,
            letter=None,
            raw=failure.raw,
            content_type=failure.content_type,
            problem=failure.problem,
            record=failure.record,
        )
    encoded = encode(failure)
    return Receipt(
        domain=failure.domain,
        letter=failure if encoded.content_type == JSON_CONTENT_TYPE else None,
        raw=encoded.body,
        content_type=encoded.content_type,
    )


def _cells(entry: Entry) -> bytes:
    told = entry_json(entry)
    return _row(_cell(told[name]) for name in FIELDS)


def _cell(value: Any) -> str:
    """Return *value* as text that neither a spreadsheet nor a terminal acts on."""
    if value is None:
        return ""
    if isinstance(value, int):
        return str(value)
    text = printable(value.isoformat() if hasattr(value, "isoformat") else value, keep="\n\t")
    begins = text.lstrip(" ")[:1]
    return f"{_TEXT_MARK}{text}" if begins and begins in _FORMULA else text


def _row(cells: Iterable[str]) -> bytes:
    """Return a line of CSV (RFC 4180), every cell in quotes."""
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerow(cells)
    return text.getvalue().encode()
