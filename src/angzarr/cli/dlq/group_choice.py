"""Which group of failures a person means, who gives the beginning of its fingerprint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from angzarr.analysis.ledger.group import Group, GroupFilter, Groups, fingerprint_at
from angzarr.cli.application import load_application


@contextmanager
def opened_groups(app_name: str | None) -> Iterator[Groups]:
    """Open the groups of an app for a block."""
    opened = load_application(app_name).open_groups()
    try:
        yield opened
    finally:
        opened.close()


def find_group(opened: Groups, beginning: str) -> Group:
    """Return the one group of this address, or whose fingerprint begins so; refuses several."""
    try:
        beginning = fingerprint_at(beginning)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if exact := opened.open_group(beginning):
        return exact
    found = opened.get_groups(GroupFilter(prefix=beginning, open_only=False), limit=2).groups
    if not found:
        msg = (
            f"there is no group {beginning!r} in the ledger; `angzarr dlq groups --all` shows them"
        )
        raise click.ClickException(msg)
    if len(found) > 1:
        msg = f"several groups begin with {beginning!r}: give more of the fingerprint"
        raise click.UsageError(msg)
    return found[0]


def whole_fingerprint(
    ctx: click.Context, _option: click.Parameter, given: str | None
) -> str | None:
    """Return the fingerprint that an option's value begins, as a filter needs all of it."""
    if not given:
        return given
    with opened_groups(ctx.obj) as opened:
        return find_group(opened, given).fingerprint
