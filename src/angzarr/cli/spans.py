"""Spans of time as a person writes them: ``90s``, ``15m``, ``2h``, ``1d12h``."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

import click

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SPAN: Final = re.compile(r"(?:\d{1,9}[smhd])+")
_LONGEST: Final = timedelta(days=366)


def span(_ctx: click.Context, _option: click.Parameter, value: str | None) -> timedelta | None:
    """Return the span that *value* says: ``90s``, ``15m``, ``2h``, ``1d12h``."""
    if value is None:
        return None
    if not _SPAN.fullmatch(value):
        msg = f"{value!r} is no duration: write 90s, 15m, 2h or 1d12h"
        raise click.BadParameter(msg)
    parts = re.findall(r"(\d+)([smhd])", value)
    span = timedelta(seconds=sum(int(number) * _UNITS[unit] for number, unit in parts))
    if not timedelta(0) < span <= _LONGEST:
        msg = f"{value!r} must be more than 0 s and at most {_LONGEST.days} d"
        raise click.BadParameter(msg)
    return span
