"""Course: one run of the demo from its first event to its account."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from rich.console import Console

from angzarr.analysis.ledger.ledger import Ledger
from angzarr.demo import servers as demo_servers
from angzarr.demo.fleet import EmbeddedFleet, Fleet, ProcessFleet
from angzarr.demo.run import Run
from angzarr.demo.script import Result, Script
from angzarr.demo.view import View
from angzarr.errors import Unavailable

#: Seconds between two looks at journal and ledger.
_LOOK: Final = 0.25
#: Deliveries after which a worker is killed: it is warm, and most of its work is to come.
_AMID: Final = 60


class Course:
    """Publishes, watches and judges one run; `go` once.

    With *kill*, the worker is killed amid its work, and another one started.
    """

    def __init__(
        self, script: Script, console: Console, *, plain: bool, timeout: float, kill: bool = False
    ) -> None:
        self._script = script
        self._run: Run = script.app.run
        self._console = console
        self._timeout = timeout
        self._kill = kill
        self._view = View(console, _title(self._run, script.what), plain=plain)

    def go(self) -> Result:
        """Run everything and return how it ended; raises AngzarrError where a server is away."""
        app, script = self._script.app, self._script
        demo_servers.check(app)
        ledger = app.open_ledger()
        try:
            with self._fleet() as fleet, self._view:
                self._watch(fleet, ledger)
            script.look(ledger)
            result = script.result()
        finally:
            ledger.close()
            demo_servers.clean(app)
        self._console.print(self._view.final(script.tally, script.entries, "done"))
        return result

    @contextmanager
    def _fleet(self) -> Iterator[Fleet]:
        publisher = self._script.publisher
        fleet: Fleet = (
            EmbeddedFleet(self._script.app, self._run)
            if self._run.embedded
            else ProcessFleet(self._run, os.environ)
        )
        try:
            fleet.start()
            publisher.start()
            yield fleet
        finally:
            if publisher.is_alive():
                publisher.stop()
            fleet.stop()

    def _watch(self, fleet: Fleet, ledger: Ledger) -> None:
        """Look until everything is at its end and told, or the time is up."""
        script, publisher = self._script, self._script.publisher
        end = time.monotonic() + self._timeout
        while time.monotonic() < end:
            fleet.check()
            if publisher.error is not None:
                raise publisher.error
            publishing = publisher.is_alive()
            self._kill_once(fleet)
            with suppress(Unavailable):  # a look is missed, nothing else
                script.look(ledger)
            left = script.left()
            doing = "publishing" if publishing else f"{left} still under way"
            self._view.show(script.tally, script.entries, doing)
            if not publishing and left == 0:
                return
            time.sleep(_LOOK)

    def _kill_once(self, fleet: Fleet) -> None:
        if self._kill and self._script.tally.outcomes.total() >= _AMID:
            self._kill = False
            fleet.kill()
            self._console.print("a worker was killed; another one is starting")


def _title(run: Run, what: str) -> str:
    from kombu.utils.url import maybe_sanitize_url

    how = "all in this process" if run.embedded else f"on {maybe_sanitize_url(run.broker)}"
    return f"angzarr demo {run.id}: {what}, {how}"
