"""WorkerDuty: one thing that an analysis worker does in turn, and how its faults are logged.

Each cause that keeps duties waiting is logged once for all of them, and again when it is over.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Protocol

from angzarr.errors import BrokerUnavailable, PayloadStoreUnavailable, Unavailable
from angzarr.runtime.failures import is_machine_fault
from angzarr.runtime.log_throttle import LogThrottle


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


_log = logging.getLogger("angzarr.analysis")

#: What differs in two texts of one cause: ports, process ids, addresses of objects.
_NUMBER: Final = re.compile(r"0x[0-9a-f]+|\d+")


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
