"""The app that a command works on: found by name and checked; completion of its entry ids."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

import click
from celery import Celery
from celery.app.utils import find_app
from click.shell_completion import CompletionItem, get_completion_class

from angzarr.analysis.ledger.entry import Entry
from angzarr.analysis.ledger.ledger import EntryFilter, Ledger
from angzarr.ordering.lanes import Lanes
from angzarr.runtime.failures import LogThrottle
from angzarr.runtime.text import printable
from angzarr.wiring.event_store import open_ordering
from angzarr.wiring.operations import Operations

_UNNAMED: Final = "no app was named: give it with -A module:app, or in the variable ANGZARR_APP"


def load_application(name: str | None) -> Operations:
    """The operations of the app that `load_angzarr` finds under *name*."""
    ops: Operations = load_angzarr(name).ops
    return ops


def load_angzarr(name: str | None) -> Celery:
    """The Angzarr app that *name* names, as `load_celery` finds it; else UsageError."""
    found = _found(name)
    if hasattr(found, "ops"):
        return found
    kind = "a plain Celery app" if isinstance(found, Celery) else _kind(found)
    msg = f"{name!r} is {kind} and not an Angzarr app: create it with angzarr.Angzarr(…)"
    raise click.UsageError(msg)


def load_celery(name: str | None) -> Celery:
    """The app that *name* names, ours or any Celery app, as `celery -A` finds it.

    ``module``, ``module:attribute``, ``module.attribute``, or a package whose module ``celery``
    has it (Django's layout). Raises UsageError; what the module raises at its import is passed on.
    """
    found = _found(name)
    if isinstance(found, Celery):
        return found
    msg = f"{name!r} is {_kind(found)} and not a Celery app: name one with -A module:app"
    raise click.UsageError(msg)


def _found(name: str | None) -> Any:
    """The object that Celery's own resolver finds under *name*."""
    if not name:
        raise click.UsageError(_UNNAMED)
    if not all(name.replace(":", ".").split(".")):
        msg = f"{name!r} names no app: write module, module:attribute or module.attribute"
        raise click.UsageError(msg)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return find_app(name, imp=_import)
    except ImportFailed as failed:
        raise failed.reason from None
    except ModuleNotFoundError as error:
        module, _, attribute = name.partition(":")
        if attribute and error.name == name:  # the module is there
            msg = f"module {module!r} has no attribute {attribute!r}: check -A"
        else:
            msg = f"there is no module {module!r} here or on the Python path"
        raise click.UsageError(msg) from error
    except (AttributeError, ValueError) as error:
        msg = f"module {name!r} has no Celery app: name it with -A {name}:app"
        raise click.UsageError(msg) from error


class ImportFailed(Exception):
    """A module raised *reason* at its import; Celery's resolver would take some for absence."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(reason)
        self.reason = reason


def _import(name: str, package: str | None = None) -> Any:
    try:
        return importlib.import_module(name, package)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise  # this module is not there
        raise ImportFailed(error) from error
    except Exception as error:
        raise ImportFailed(error) from error


def _kind(found: Any) -> str:
    return f"a {type(found).__name__}"


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

#: Seconds for which lanes that could not be asked are left alone: no page waits for them each time.
_LEFT_ALONE: Final = 30.0


class WaitingBehind:
    """Counts the events that wait behind entries; safe to use from threads."""

    def __init__(self, open_lanes: Callable[[], Lanes], asks: LogThrottle | None = None) -> None:
        self._open = open_lanes
        self._tries = asks or LogThrottle(_LEFT_ALONE)
        self._lanes: Lanes | None = None
        self._away = False
        self._lock = threading.Lock()

    def __call__(self, entries: Sequence[Entry]) -> Mapping[str, int]:
        """The number of later events that wait behind each of *entries*, by id, in one question.

        An entry behind which nothing waits is left out, as all are where the lanes cannot be asked.
        """
        letters = {one.letter_id: one.id for one in entries if one.is_ordered}
        if not letters or (self._away and not self._tries.now()):
            return {}
        try:
            found = self._opened().behind(sorted(letters))
        except Exception:  # noqa: BLE001 - a page is about its entries, whatever becomes of lanes
            self._tries.now()
            self._away = True
            return {}
        self._away = False
        return {letters[one]: count for one, count in found.items() if one in letters and count > 0}

    def close(self) -> None:
        """Let connections go."""
        with self._lock:
            lanes, self._lanes = self._lanes, None
        if lanes is not None:
            lanes.close()

    def _opened(self) -> Lanes:
        with self._lock:
            if self._lanes is None:
                self._lanes = self._open()
            return self._lanes


def open_behind(ops: Operations, doors: ExitStack) -> WaitingBehind:
    """The counter of waiting events; it connects when first asked about an ordered handler."""
    behind = WaitingBehind(lambda: open_ordering(ops.settings, ops.broker_url).lanes)
    doors.callback(behind.close)
    return behind


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
    """Entries whose id begins as *typed*; a ledger that cannot be asked offers none."""
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
