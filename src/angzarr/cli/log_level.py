"""The option that says how much a process of ours logs."""

from __future__ import annotations

import logging
from typing import Final

import click

_LEVELS: Final = ("debug", "info", "warning", "error")


def _number(_ctx: click.Context, _option: click.Parameter, name: str) -> int:
    return logging.getLevelNamesMapping()[name.upper()]


LOG_LEVEL: Final = click.option(
    "--log-level",
    type=click.Choice(_LEVELS),
    default="info",
    show_default=True,
    callback=_number,
    help="Log lines on stderr from this level, JSON unless that is a terminal.",
)
