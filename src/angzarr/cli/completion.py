"""angzarr completion: what a shell needs to complete commands, options and ids of entries."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import Final

import click
from click.shell_completion import CompletionItem, get_completion_class

from angzarr.analysis.ledger.ledger import EntryFilter, Ledger
from angzarr.cli.application import load_application
from angzarr.runtime.text import printable

_SHELLS: Final = ("bash", "zsh", "fish")
_VARIABLE: Final = "_ANGZARR_COMPLETE"
#: Ids offered at a time: more are no help.
_MOST: Final = 20
#: Characters of an id that are offered, as the tables show them.
_SHOWN: Final = 12


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS), required=False)
def completion(shell: str | None) -> None:
    """Print the completion script of SHELL (default: the one in use).

    For bash: source <(angzarr completion bash)
    """
    name = shell or Path(os.environ.get("SHELL", "")).name
    found = get_completion_class(name)
    if found is None:
        msg = f"say for which shell: {', '.join(_SHELLS)}"
        raise click.UsageError(msg)
    root = click.get_current_context().find_root()
    click.echo(found(root.command, {}, "angzarr", _VARIABLE).source())


def entry_ids(ctx: click.Context, _parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Return entries whose id begins as *typed*; a ledger that cannot be asked offers none."""
    wanted = EntryFilter(id_prefix=typed.lower())
    try:
        with closing(_ledger(ctx)) as ledger:
            found = ledger.get_failed_events(wanted, status=None, limit=_MOST).entries
    except Exception:  # noqa: BLE001 - a prompt is no place for an error
        return []
    return [
        CompletionItem(one.id[:_SHOWN], help=printable(f"{one.status} {one.handler_name}"))
        for one in found
    ]


def _ledger(ctx: click.Context) -> Ledger:
    named = ctx.find_root().params.get("app_name") or os.environ.get("ANGZARR_APP")
    return load_application(named).open_ledger()
