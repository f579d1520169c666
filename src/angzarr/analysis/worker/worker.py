"""AnalysisWorker: reads the dead-letter queues into the ledger, decides, replays (spec A1).

It does its duties in turn. None may let a letter or an answer go before the ledger has committed
it, and none may stop the others. Its health is what its own rounds met: a probe asks no server.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Protocol

from angzarr.errors import (
    BrokerUnavailable,
    DeadLetterQueueUnavailable,
    LedgerUnavailable,
    PayloadStoreUnavailable,
    Unavailable,
)
from angzarr.runtime.failures import LogThrottle, is_machine_fault
from angzarr.runtime.health_report import Condition, Heartbeat, Report, since

_log = logging.getLogger("angzarr.analysis")

#: What differs in two texts of one cause: ports, process ids, addresses of objects.
_NUMBER: Final = re.compile(r"0x[0-9a-f]+|\d+")


class WorkerDuty(Protocol):
    """Bounded work, done again and again. What it raises is reported; what it holds it keeps."""

    #: What waits while it fails, for the log: ``letters``.
    name: str

    def turn(self, wait: timedelta) -> int:
        """Do what there is, at most a batch of it, and return how much that was.

        Only a duty that must wait for work does, at most *wait*. It may raise anything: it is
        called again after a pause and must then go on where it stopped.
        """


def may_pass(error: Exception) -> bool:
    """True if *error* is not of the entry or job in hand: others may do, it comes again.

    Broker or payload store are away, or this machine lacks memory, threads or files.
    """
    away = isinstance(error, BrokerUnavailable | PayloadStoreUnavailable)
    return away or is_machine_fault(error)


def report(what: str, error: Exception, seldom: LogThrottle, *, cause: str = "") -> bool:
    """Say once a minute that *what* waits because of *error*; return whether it was said.

    *cause* is what is said once a minute, whatever waits for it; without one *what* is.
    """
    if not seldom.now(cause or what):
        return False
    known = isinstance(error, Unavailable)
    _log.error(
        "work_waits: %s wait, nothing is lost, trying again: %s", what, error,
        exc_info=None if known else error,
    )  # fmt: skip
    return True


@dataclass(slots=True, kw_only=True)
class Outages:
    """Says each cause at once and then once a minute, and that what waited for it goes on."""

    seldom: LogThrottle = field(default_factory=LogThrottle)
    #: Causes that were said and are not over, with the duties that wait or waited for them.
    _said: dict[str, set[str]] = field(default_factory=dict, init=False)

    def hear(self, failed: Mapping[str, Exception]) -> None:
        """Take what a round met, by the name of the duty; nothing failed: all of it goes on."""
        causes: dict[str, list[str]] = {}
        for name, error in failed.items():
            causes.setdefault(_cause(error), []).append(name)
        for cause, names in causes.items():
            if report(", ".join(names), failed[names[0]], self.seldom, cause=cause):
                self._said.setdefault(cause, set())
            if cause in self._said:
                self._said[cause].update(names)
        self._tell_what_is_over(causes, failed)

    def _tell_what_is_over(
        self, causes: Mapping[str, list[str]], failed: Mapping[str, Exception]
    ) -> None:
        over: set[str] = set()
        for cause in self._said.keys() - causes.keys():
            over |= self._said.pop(cause)
        if going_on := sorted(over - failed.keys()):
            _log.info("%s go on", ", ".join(going_on))


def _cause(error: Exception) -> str:
    return _NUMBER.sub("#", f"{type(error).__name__}: {error}")


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
        """True if to stop."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait at most *timeout* seconds for it; return whether to stop."""


@dataclass(slots=True, kw_only=True)
class Round:
    """The results of one round. `away` names what failed; its work is kept and tried again."""

    #: How much each duty did, by name.
    done: dict[str, int] = field(default_factory=dict)
    away: list[str] = field(default_factory=list)

    @property
    def idle(self) -> bool:
        """True if there was nothing to do."""
        return not any(self.done.values())


@dataclass(slots=True, kw_only=True)
class AnalysisWorker:
    """One worker; several share the work. Not for more than one thread."""

    duties: Sequence[WorkerDuty]
    #: Who stands in the history, e.g. ``analysis@host:pid``.
    name: str
    chance: Callable[[], float]
    outages: Outages = field(default_factory=Outages)
    #: Says what keeps the facts of acts from being moved, if anything does.
    facts_say: Callable[[], str] = str
    #: Beaten before each duty and while it pauses.
    pulse: Heartbeat = field(default_factory=Heartbeat)
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


#: What a round needs → what its duties raise where that is away.
_NEEDED: Final = {
    "ledger": LedgerUnavailable,
    "dead_letters": DeadLetterQueueUnavailable,
    "broker": BrokerUnavailable,
}


class AnalysisHealth:
    """Tells of one analysis worker; asked from any thread."""

    def __init__(
        self, worker: AnalysisWorker, *, stalled_after: float, stopping: Callable[[], bool]
    ) -> None:
        self._worker = worker
        self._stalled_after = stalled_after
        self._stopping = stopping

    def live(self) -> Report:
        """True if its rounds go on; a server that is away stops none of them."""
        still = self._worker.pulse.age()
        if self._stopping():
            return Report(
                "live", [Condition("rounds", holds=True, says="it ends its round and stops")]
            )
        says = f"they went on {since(still)} ago"
        return Report("live", [Condition("rounds", holds=still <= self._stalled_after, says=says)])

    def ready(self) -> Report:
        """True if its last round reached all that it needs."""
        stops, failed = self._stopping(), self._worker.failed
        running = Condition(
            "running", holds=not stops, says="it stops" if stops else "it is not stopping"
        )
        if failed is None:
            return Report(
                "ready", [running, Condition("rounds", holds=False, says="the first goes on")]
            )
        needed = [_reached(name, kind, failed) for name, kind in _NEEDED.items()]
        says = self._worker.facts_say() or "they are moved"
        facts = Condition("facts", holds=True, says=says)  # that wait stop nothing
        return Report("ready", [running, *needed, _others(failed), facts])


def _reached(name: str, kind: type[Exception], failed: Mapping[str, Exception]) -> Condition:
    waits = [duty for duty, error in failed.items() if isinstance(error, kind)]
    says = f"away: {', '.join(waits)} wait" if waits else "the last round met no error of it"
    return Condition(name, holds=not waits, says=says)


def _others(failed: Mapping[str, Exception]) -> Condition:
    """The condition of what failed otherwise; the log says why, which may hold anything."""
    known = tuple(_NEEDED.values())
    waits = {duty: error for duty, error in failed.items() if not isinstance(error, known)}
    says = ", ".join(f"{duty} wait ({type(error).__name__})" for duty, error in waits.items())
    return Condition("duties", holds=not waits, says=says or "none failed")
