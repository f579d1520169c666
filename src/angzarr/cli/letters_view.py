"""How a transfer of letters goes and how it ended, for people and programs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from angzarr.cli.entry_json import print_json
from angzarr.cli.entry_view import draws
from angzarr.dead_letters.moving import Account
from angzarr.printable import printable
from angzarr.seldom import Seldom

#: Seconds between two lines where there is no bar.
_NOW_AND_THEN: Final = 10.0
#: Letters that stayed, of which people are told.
_SHOWN: Final = 20

Tell = Callable[[int], None]


@contextmanager
def progress(doing: str, total: int | None, *, bar: bool, what: str = "letters") -> Iterator[Tell]:
    """Give what is told how many were taken: a bar on a terminal, else a line at times."""
    console = Console(stderr=True)
    if not (bar and draws(console)):
        yield _lines(doing, total, what)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as shown:
        task = shown.add_task(doing, total=total)
        yield lambda taken: shown.update(task, completed=taken, total=_at_least(total, taken))


def print_account(
    account: Account, *, done: str, stopped: bool, as_json: bool, err: bool = False
) -> None:
    """Print what became of the letters; *done* says what was done with them."""
    if as_json:
        print_json(account_json(account, stopped=stopped))
        return
    of = ", ".join(f"{printable(name)} {count}" for name, count in sorted(account.carried.items()))
    click.echo(f"{done} {account.carried.total()} letters{f': {of}' if of else ''}", err=err)
    if account.unreadable:
        click.echo(f"{account.unreadable} of them cannot be read as letters", err=err)
    if account.kept:
        click.echo(f"{len(account.kept)} letters stay where they were:", err=err)
        print_reasons(account.kept, err=err)
    if stopped:
        click.echo("stopped; run it again for the rest", err=err)
    elif account.remaining:
        click.echo(
            f"about {account.remaining} letters are still there, in other hands or new:"
            " run it again for them",
            err=err,
        )


def print_reasons(reasons: Mapping[Any, str], *, err: bool) -> None:
    """Print why letters were not taken, by name, the first of them."""
    for name, why in list(reasons.items())[:_SHOWN]:
        click.echo(f"  {printable(name)}: {printable(why)}", err=err)
    if len(reasons) > _SHOWN:
        click.echo(f"  and {len(reasons) - _SHOWN} more", err=err)


def account_json(account: Account, *, stopped: bool) -> dict[str, Any]:
    """Return *account* for programs."""
    return {
        "carried": account.carried.total(),
        "domains": dict(sorted(account.carried.items())),
        "unreadable": account.unreadable,
        "kept": account.kept,
        "remaining": account.remaining,
        "stopped": stopped,
    }


def _lines(doing: str, total: int | None, what: str) -> Tell:
    seldom = Seldom(_NOW_AND_THEN, time.monotonic)
    seldom.now()  # what takes no longer needs no line

    def tell(taken: int) -> None:
        if seldom.now():
            of = f" of about {_at_least(total, taken)}" if total is not None else ""
            click.echo(f"{doing}: {taken}{of} {what}", err=True)

    return tell


def _at_least(total: int | None, taken: int) -> int | None:
    return None if total is None else max(total, taken)
