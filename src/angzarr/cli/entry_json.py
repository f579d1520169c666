"""JSON on standard output, for programs."""

from __future__ import annotations

import click

from angzarr.analysis.entry_json import json_text


def print_json(value: object) -> None:
    """Print *value* as one JSON document."""
    click.echo(json_text(value, indent=2))
