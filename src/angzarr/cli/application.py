"""The app that a command works on: found by name, checked, with errors that say the cure.

The option that says how much a process of ours logs.
"""

from __future__ import annotations

import importlib
import logging
import sys
from pathlib import Path
from typing import Any, Final

import click
from celery import Celery
from celery.app.utils import find_app

from angzarr.wiring.application import Application

_UNNAMED: Final = "no app was named: give it with -A module:app, or in the variable ANGZARR_APP"


def load_application(name: str | None) -> Application:
    """Return the Angzarr app that *name* names, as `load_celery` finds it; else UsageError."""
    found = _found(name)
    if hasattr(found, "open_ledger"):
        return found  # type: ignore[no-any-return]
    kind = "a plain Celery app" if isinstance(found, Celery) else _kind(found)
    msg = f"{name!r} is {kind} and not an Angzarr app: create it with angzarr.Angzarr(…)"
    raise click.UsageError(msg)


def load_celery(name: str | None) -> Celery:
    """Return the app that *name* names, ours or any Celery app, as `celery -A` finds it.

    ``module``, ``module:attribute``, ``module.attribute``, or a package whose module ``celery``
    has it (Django's layout). Raises UsageError; what the module raises at its import is passed on.
    """
    found = _found(name)
    if isinstance(found, Celery):
        return found
    msg = f"{name!r} is {_kind(found)} and not a Celery app: name one with -A module:app"
    raise click.UsageError(msg)


def _found(name: str | None) -> Any:
    """Return what Celery's own resolver finds under *name*."""
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
