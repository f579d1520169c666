"""AnalysisWorker: reads the dead-letter queues into the ledger, decides, replays (spec A1).

It does its duties in turn. None may let a letter or an answer go before the ledger has committed
what it says, and none may stop the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Protocol

from angzarr.analysis.ledger.duty import Duty
from angzarr.analysis.worker.outage_log import Outages
from angzarr.runtime.heartbeat import Pulse

#: How long a round waits for the first letter.
POLL: Final = timedelta(seconds=1)
#: The same after a round with work: where letters are few, replays and answers need not wait.
BUSY_POLL: Final = timedelta(milliseconds=50)
#: Pause after a round that met a dependency away: doubled up to the longest, with jitter.
FIRST_WAIT: Final = timedelta(milliseconds=200)
LONGEST_WAIT: Final = timedelta(seconds=10)
#: Pause after a round without work: a queue may answer at once that it is empty.
IDLE_WAIT: Final = timedelta(milliseconds=50)


class Stop(Protocol):
    """A threading.Event, or what a test makes of it."""

    def is_set(self) -> bool:
        """Tell whether to stop."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait at most *timeout* seconds for it; return whether to stop."""


@dataclass(slots=True, kw_only=True)
class Round:
    """What one round did. `away` names what failed; what it was about is kept and tried again."""

    #: How much each duty did, by name.
    done: dict[str, int] = field(default_factory=dict)
    away: list[str] = field(default_factory=list)

    @property
    def idle(self) -> bool:
        """Whether there was nothing to do."""
        return not any(self.done.values())


@dataclass(slots=True, kw_only=True)
class AnalysisWorker:
    """One worker; several share the work. Not for more than one thread."""

    duties: Sequence[Duty]
    #: Who stands in the history, e.g. ``analysis@host:pid``.
    name: str
    chance: Callable[[], float]
    outages: Outages = field(default_factory=Outages)
    #: Beaten before each duty and while it pauses.
    pulse: Pulse = field(default_factory=Pulse)
    #: What the last round met, by the name of the duty; None before its end.
    failed: Mapping[str, Exception] | None = field(default=None, init=False)

    def run(self, stop: Stop) -> None:
        """Work until *stop* is set; what is in hand then goes back when the queues are closed."""
        wait, poll = FIRST_WAIT, POLL
        while not stop.is_set():
            done = self.step(wait=poll)
            poll = POLL if done.idle else BUSY_POLL
            if done.away:
                stop.wait(wait.total_seconds() * (0.5 + self.chance()))
                wait = min(2 * wait, LONGEST_WAIT)
                continue
            wait = FIRST_WAIT
            if done.idle:
                stop.wait(IDLE_WAIT.total_seconds())

    def step(self, *, wait: timedelta = timedelta(0)) -> Round:
        """Do one round of all duties, in order; the first that waits does so at most *wait*."""
        done, failed = Round(), dict[str, Exception]()
        for duty in self.duties:
            self.pulse.beat()
            try:
                done.done[duty.name] = duty.turn(wait)
            except Exception as error:  # noqa: BLE001 - the worker must outlive every error
                failed[duty.name] = error
        self.pulse.beat()
        self.failed = failed
        done.away = list(failed)
        self.outages.hear(failed)
        return done
