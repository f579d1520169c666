"""Example: one that has event books, sagas and an app of its own, as a run of the demo."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import angzarr as package
from angzarr.delivery.handlers import Handlers
from angzarr.demo import run as demo_run
from angzarr.demo.journal import Journal, JournalHook
from angzarr.demo.run import Run
from angzarr.errors import ConfigurationError


class Example(NamedTuple):
    """Modules in the folder of the examples.

    `script` has ``opening(prefix)``, ``wishes(prefix, count, seed)`` and ``reckon(asks)``, and
    names in STORY a command of a saga.
    """

    app: str
    script: str


EXAMPLES: Final = {
    "orders": Example("order_desk", "order_desk_day"),
    "poker": Example("card_room", "card_room_evening"),
}


def check_name(name: str) -> str:
    """Return *name* if it is an example; raises ConfigurationError with all that are."""
    if name not in EXAMPLES:
        msg = f"there is no example {name!r}: use {' or '.join(sorted(EXAMPLES))}"
        raise ConfigurationError(msg)
    return name


def folder() -> Path:
    """Return the folder of the examples: inside the installed package, or of this checkout."""
    inside = Path(package.__file__).parent
    for found in (inside / "examples", inside.parents[1] / "examples"):
        if (found / "orders.py").exists():
            return found
    msg = "the examples that the demo runs are missing: run it in a checkout of the project"
    raise ConfigurationError(msg)


def enter() -> None:
    """Let the examples import each other by name, as in a folder of a user's."""
    path = str(folder())
    if path not in sys.path:
        sys.path.insert(0, path)


def app_of(run: Run) -> Any:
    """Return the example's app, with names of the run's own on every server."""
    enter()
    app: Any = importlib.import_module(EXAMPLES[run.example].app).app
    app.run, app.journal = run, Journal(run.journal)
    app.hooks = (*app.hooks, JournalHook(app.journal))
    demo_run.configure(app, run)
    _take_domains(app, run)
    # Letters of others are none of the demo's business.
    app.dead_letter_domains = lambda: sorted(app.handlers.domains())
    return app


def _take_domains(app: Any, run: Run) -> None:
    """Let each handler's letters go into a queue of the run's own; books keep their domains."""
    registered, app.handlers = app.handlers, Handlers()
    for handler in registered:
        own = run.domain(handler.domain) if handler.domain else None
        app.handlers.add(replace(handler, domain=own))


def script_of(run: Run) -> Any:
    """Return the module with the example's traffic and account."""
    return importlib.import_module(EXAMPLES[run.example].script)
