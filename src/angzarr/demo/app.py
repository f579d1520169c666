"""The app of a demo run: the examples' handlers, each of whose calls is written in the journal.

Imported by the demo and by each of its worker processes, with the run named in the environment. An
example with event books has an app of its own.
"""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from collections.abc import Callable, Sequence
from typing import Any

from angzarr.app.angzarr import Angzarr
from angzarr.delivery.context import Context
from angzarr.demo import run as demo_example
from angzarr.demo import run as demo_run
from angzarr.demo.journal import Journal, JournalHook
from angzarr.demo.run import Run
from angzarr.events.event import event_type_of


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
        demo_run.configure(self, run)
        demo_run.read_own_letters(self)

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


def watch(function: Callable[..., Any], journal: Journal) -> Callable[..., Any]:
    """The given *function* as a handler with context whose every call is written in *journal*."""
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


def load(modules: Sequence[str]) -> None:
    """Import *modules* of the examples, whose `from application import app` finds the run's app."""
    sys.modules["application"] = sys.modules[__name__]
    demo_example.enter()
    for module in modules:
        __import__(module)


_run = demo_run.read()
app = demo_example.app_of(_run) if _run.example else WatchedApp(_run)
if not _run.example:
    load(app.conf.include)
