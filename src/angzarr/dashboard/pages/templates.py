"""Templates: everything is escaped, and characters that cannot be seen are made visible."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from angzarr.analysis.ledger.export import json_text
from angzarr.analysis.ledger.group import group_address
from angzarr.analysis.ledger.ledger import EntryFilter
from angzarr.analysis.ledger.replay_options import STALE_AGAIN
from angzarr.runtime.text import ago, printable, span_text

#: Characters of one value that a page shows; the API gives the whole.
LONGEST_SHOWN: Final = 64 * 1024


def write(template: str, **values: Any) -> str:
    """The page of *template*."""
    return _environment().get_template(template).render(values)


def shown(value: Any) -> Any:
    """Return *value* as a page may show it: no control characters, no endless text."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    if len(value) > LONGEST_SHOWN:
        more = len(value) - LONGEST_SHOWN
        value = f"{value[:LONGEST_SHOWN]}\n… and {more} characters more: the API gives them"
    return printable(value, keep="\n\t")


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("angzarr.dashboard"),
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["stale_again"] = STALE_AGAIN
    made.filters |= {
        "ago": ago,
        "span": span_text,
        "iso": _iso,
        "utc": _utc,
        "json": lambda value: json_text(value, indent=2),
        "chosen": _chosen,
        "group_address": group_address,
        "segment": lambda value: quote(str(value), safe="", errors="replace"),
    }
    return made


def _chosen(wanted: EntryFilter) -> list[tuple[str, str]]:
    """Return what a filter names, as a person reads it."""
    named = ((one.name, getattr(wanted, one.name)) for one in fields(wanted))
    return [
        (name, _utc(value) if isinstance(value, datetime) else str(value))
        for name, value in named
        if value not in (None, "")
    ]


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds")


def _utc(at: datetime) -> str:
    return f"{at.astimezone(UTC).replace(tzinfo=None).isoformat(' ', 'seconds')} UTC"
