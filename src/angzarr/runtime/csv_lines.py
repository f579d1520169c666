"""Lines of CSV (RFC 4180) that neither a spreadsheet nor a terminal acts on."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any, Final

from angzarr.runtime.text import printable

#: A spreadsheet takes a cell that begins with one of these for a formula (OWASP, CSV Injection).
_FORMULA: Final = frozenset("=+-@|%\t\r\n\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}"
                            "\N{FULLWIDTH HYPHEN-MINUS}\N{FULLWIDTH COMMERCIAL AT}")  # fmt: skip
#: Before a cell it says: this is text.
_TEXT_MARK: Final = "'"


def csv_line(values: Iterable[Any]) -> bytes:
    """A line of *values* with its end, every cell in quotes; None is an empty cell."""
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerow([_cell(value) for value in values])
    return text.getvalue().encode()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, int):
        return str(value)
    text = printable(value.isoformat() if hasattr(value, "isoformat") else value, keep="\n\t")
    begins = text.lstrip(" ")[:1]
    return f"{_TEXT_MARK}{text}" if begins and begins in _FORMULA else text
