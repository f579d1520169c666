"""Export: entries of the ledger as lines, one after the other, however many there are (A5).

An entry stands there as `dlq list --json` tells it, a letter as it lies in the ledger: redacted and
sealed as it was when it was filed.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import chain, islice
from typing import Any, Final

from angzarr.analysis.entry import Entry, Failure, Unreadable
from angzarr.analysis.entry_json import FIELDS, entry_json, json_text
from angzarr.analysis.ledger import Ledger
from angzarr.dead_letters.codec import JSON_CONTENT_TYPE, encode
from angzarr.dead_letters.lines import to_line
from angzarr.dead_letters.queue import Receipt
from angzarr.printable import printable


class Format(StrEnum):
    """How lines are written."""

    JSONL = "jsonl"
    CSV = "csv"


#: Letters that are in memory at a time; one has 32 MiB at most.
_AT_ONCE: Final = 20
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
        details = ledger.open_all([entry.id for entry in some])
        for entry in some:
            if entry.id in details:
                yield to_line(_receipt(details[entry.id].failure))


def _receipt(failure: Failure) -> Receipt:
    if isinstance(failure, Unreadable):
        return Receipt(
            domain=failure.domain,
            letter=None,
            raw=failure.raw,
            content_type=failure.content_type,
            problem=failure.problem,
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
