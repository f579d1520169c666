"""The app of a demo run: the examples' handlers, each of whose calls is written in the journal.

Imported by the demo and by each of its worker processes, with the run named in the environment.
"""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import angzarr as package
from angzarr.app import Angzarr
from angzarr.cli import demo_run
from angzarr.cli.demo_journal import SETTLED, Journal, Pair
from angzarr.cli.demo_run import Run
from angzarr.delivery.context import Context
from angzarr.delivery.delivery import Delivery
from angzarr.delivery.outcome import WORDS, Outcome
from angzarr.errors import ConfigurationError
from angzarr.events.codec import event_type_of


class JournalHook:
    """Writes each settled delivery down, for the live table."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def attempt(self, _delivery: Delivery, /) -> AbstractContextManager[object]:
        """See nothing: the handlers are watched more closely."""
        return nullcontext()

    def settled(self, delivery: Delivery, outcome: Outcome, /) -> None:
        """Write the outcome's word."""
        pair = Pair(delivery.handler, delivery.event.id)
        self._journal.write(SETTLED, pair, WORDS[type(outcome)], delivery.position.replay)


class WatchedApp(Angzarr):
    """An `Angzarr` app of one demo run."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.journal = Journal(run.journal)
        #: Event type → its handlers, as the decorators said it.
        self.takers: dict[str, list[str]] = {
            event_type: list(demo_run.FOREIGN) for event_type in run.types
        }
        super().__init__(
            "demo",
            hooks=[JournalHook(self.journal)],
            include=["anything"] if run.types else ["orders", "poker"],
        )
        self.conf.update(
            task_default_queue=run.name,
            worker_redirect_stdouts=False,
            worker_hijack_root_logger=not run.embedded,
        )
        if run.broker.startswith(("redis", "rediss")):
            self.conf.broker_transport_options = {"global_keyprefix": f"{run.name}:"}

    def handler(self, event: object, *, domain: str | None = None, **options: Any) -> Any:
        """Register a handler as `Angzarr` does, in the run's own domain and under watch."""
        own = self.run.domain(domain) if domain else None
        register = super().handler(event, domain=own, **options)

        def watched(function: Callable[..., Any]) -> Any:
            task = register(watch(function, self.journal))
            takers = self.takers.setdefault(event_type_of(event), [])
            takers.extend({task.name} - {*takers})
            return task

        return watched

    def dead_letter_domains(self) -> list[str]:
        """Return the run's own domains: letters of others are none of the demo's business."""
        self.finalize(auto=True)
        return sorted(self.handlers.domains())


def watch(function: Callable[..., Any], journal: Journal) -> Callable[..., Any]:
    """Return *function* as a handler with context whose every call is written in *journal*."""
    names = list(inspect.signature(function).parameters)
    takes_context = len(names) > 1

    def call(event: Any, context: Context) -> Any:
        return function(event, context) if takes_context else function(event)

    @functools.wraps(function)
    def run(event: Any, context: Context) -> Any:
        with journal.run_of(context):
            return call(event, context)

    @functools.wraps(function)
    async def run_async(event: Any, context: Context) -> Any:
        with journal.run_of(context):
            return await call(event, context)

    watched: Any = run_async if inspect.iscoroutinefunction(function) else run
    del watched.__wrapped__  # its own signature, with the context, is the one that counts
    watched.__annotations__ = {"event": typing.get_type_hints(function).get(names[0], Any)}
    return typing.cast("Callable[..., Any]", watched)


def examples() -> Path:
    """Return the folder of the examples: inside the installed package, or of this checkout."""
    inside = Path(package.__file__).parent
    for folder in (inside / "examples", inside.parents[1] / "examples"):
        if (folder / "orders.py").exists():
            return folder
    msg = "the examples that the demo runs are missing: run it in a checkout of the project"
    raise ConfigurationError(msg)


def load(modules: Sequence[str]) -> None:
    """Import *modules* of the examples, whose `from application import app` finds the run's app."""
    sys.modules["application"] = sys.modules[__name__]
    folder = str(examples())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    for module in modules:
        __import__(module)


app = WatchedApp(demo_run.read())
load(app.conf.include)
