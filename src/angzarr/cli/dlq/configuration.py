"""Replays with the newest versions of configurations: which these are, and what that changes."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from functools import partial
from typing import Final

import click

from angzarr.analysis.ledger.failure import Failure
from angzarr.analysis.replay.configuration import configuration_differences
from angzarr.configuration.version import (
    LONGEST_VERSION,
    ConfigurationStore,
    ConfigurationVersion,
    is_name,
)
from angzarr.runtime.text import printable
from angzarr.wiring.operations import Operations

AS_PINNED: Final = "as-pinned"
NEWEST: Final = "newest"

CONFIG = click.option(
    "--config",
    type=click.Choice([AS_PINNED, NEWEST]),
    default=AS_PINNED,
    show_default=True,
    help="Versions of configurations that handlers see: those of the letter, or the newest.",
)

#: Letters that are looked at before a job begins.
MOST_LOOKED_AT: Final = 20


def chosen_versions(ops: Operations, config: str) -> tuple[tuple[str, str], ...]:
    """The versions that stand in for those of the letters, fixed from now on; none: as pinned.

    Raises ConfigurationError, StoreUnavailable.
    """
    if config == AS_PINNED:
        return ()
    with closing(ops.open_configurations()) as store:
        found = ((name, store.current(name)) for name in store.ids())
        chosen = tuple((name, one.version) for name, one in found if one is not None)
    if not chosen:
        msg = "there is no configuration, so none has a newest version: leave --config out"
        raise click.UsageError(msg)
    return chosen


def tell_differences(
    ops: Operations, failures: Iterable[Failure], chosen: tuple[tuple[str, str], ...]
) -> None:
    """Tell on standard error what *chosen* changes for *failures*; nothing where none is chosen."""
    if not chosen:
        return
    with closing(ops.open_configurations()) as store:
        found = configuration_differences(failures, dict(chosen), partial(_get, store))
    for line in (line for one in found for line in one.lines()):
        click.echo(printable(line), err=True)
    if not found:
        click.echo("the newest versions are those that they are pinned to", err=True)


def _get(store: ConfigurationStore, name: str, version: str) -> ConfigurationVersion | None:
    """The version; what a letter says may be anything."""
    known = is_name(name) and is_name(version, LONGEST_VERSION)
    return store.get(name, version) if known else None
