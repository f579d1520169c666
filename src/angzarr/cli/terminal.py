"""What people type and read: spans, moments, tables, and JSON for programs.

Text that came from outside is spelled out: a terminal never acts on it. Tables show local time,
JSON has UTC.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO, Final, Protocol

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from angzarr.analysis.ledger.export import json_text
from angzarr.runtime.text import escaped, printable


class ByteSink(Protocol):
    """What takes bytes."""

    def write(self, data: bytes, /) -> int:
        """Take *data*; return how many bytes that was."""

    def flush(self) -> None:
        """Let all of it go on."""


def standard_output() -> ByteSink:
    """The sink that writes lines to standard output."""
    raw = sys.stdout.buffer
    return _Shown(raw) if sys.stdout.isatty() else raw


class _Shown:
    """A terminal, which is shown whole lines and obeys none."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw

    def write(self, data: bytes, /) -> int:
        """Write *data* with what a terminal would act on spelt out."""
        self._raw.write(escaped(data.decode("utf-8", "backslashreplace")).encode())
        return len(data)

    def flush(self) -> None:
        """Flush the terminal."""
        self._raw.flush()


def print_json(value: object) -> None:
    """Print *value* as one JSON document."""
    click.echo(json_text(value, indent=2))


#: Characters of an id that a person sees and types; fewer than the shortest is refused.
SHORT_ID: Final = 12
#: Width where the output is no terminal: nothing is cut short in a log.
_WIDTH: Final = 200


def console(*, err: bool = False) -> Console:
    """The console of this terminal, or a wide one where there is none."""
    terminal = Console(highlight=False, stderr=err)
    return terminal if terminal.is_terminal else Console(highlight=False, width=_WIDTH, stderr=err)


def draws(terminal: Console) -> bool:
    """True if *terminal* can be drawn over; one of ``TERM=dumb`` shows lines only."""
    return terminal.is_terminal and not terminal.is_dumb_terminal


def safe(value: object, style: str = "") -> Text:
    """The *value* as text without markup and without what a terminal would act on."""
    return Text(printable(value, keep="\n\t"), style=style)


def pairs(values: Mapping[str, object], title: str | None = None) -> Table:
    """A table of names and values, without those that are empty."""
    table = Table("", "", title=title, title_justify="left", show_header=False)
    for name, value in values.items():
        if value not in (None, ""):
            table.add_row(safe(name, "bold"), safe(value))
    return table


_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_PART: Final = r"(\d{1,9})([smhdw])"
_SPAN: Final = re.compile(f"(?:{_PART})+")
_LONGEST: Final = timedelta(days=366)
#: How long ago a moment may be that is named so: what is pruned is kept for years.
_LONGEST_AGO: Final = timedelta(days=3660)


def _span_in(text: str) -> timedelta | None:
    """The span that *text* names, at most a little over `_LONGEST_AGO`; None for another."""
    if not _SPAN.fullmatch(text):
        return None
    seconds = sum(int(n) * _UNITS[unit] for n, unit in re.findall(_PART, text))
    return timedelta(seconds=min(seconds, _LONGEST_AGO.total_seconds() + 1))


class Span(click.ParamType[timedelta]):
    """A span of up to a year: ``90s``, ``15m``, ``2h``, ``1d12h``, ``1w``."""

    name = "span"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """The span that *value* names."""
        span = _span_in(str(value).strip())
        if span is None:
            self.fail(f"{value!r} is not a span: write 90s, 15m, 2h, 1d12h or 1w", param, ctx)
        if not timedelta(0) < span <= _LONGEST:
            self.fail(f"{value!r} must be more than 0 s and at most {_LONGEST.days} d", param, ctx)
        return span


class Seconds(Span):
    """A span, or a number of seconds as Kubernetes has it."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """The span that *value* names."""
        text = str(value).strip()
        return super().convert(f"{text}s" if text.isdecimal() else text, param, ctx)


class Moment(click.ParamType[datetime]):
    """A moment as ISO 8601 has it, in local time unless it says its zone; *ago*: or a span ago."""

    name = "moment"

    def __init__(self, *, ago: bool = True) -> None:
        self._ago = ago

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """The moment that *value* names, aware of its zone."""
        text = str(value).strip()
        try:
            if self._ago and (span := _span_in(text)) is not None and span <= _LONGEST_AGO:
                return datetime.now(UTC) - span
            return datetime.fromisoformat(text).astimezone()
        except (ValueError, OverflowError):
            ago = ", or 1h for an hour ago" if self._ago else ""
            msg = f"{value!r} is not a moment: write 2026-11-22, 2026-11-22T14:30 or …14:30Z{ago}"
            self.fail(msg, param, ctx)


def moment(at: datetime | None) -> str:
    """The moment *at* in local time with its zone, as --since and --until take it; empty for None.

    At the ends of the calendar, such as the zero time of Go and .NET, it is in UTC: local time
    there is in a year that Python does not count.
    """
    if at is None:
        return ""
    try:
        local = at.astimezone()
    except (ValueError, OverflowError, OSError):
        local = at
    return local.isoformat(" ", "seconds")


YES: Final = click.option("--yes", is_flag=True, help="Do not ask.")
JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
