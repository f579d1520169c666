"""Duty: one of the things that an analysis worker does in turn, and how it says what went wrong."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Protocol

from angzarr.errors import BrokerUnavailable, PayloadStoreUnavailable, Unavailable
from angzarr.runtime.log_throttle import Seldom
from angzarr.runtime.machine_faults import is_machine_fault

_log = logging.getLogger("angzarr.analysis")


class Duty(Protocol):
    """Bounded work, done again and again. What it raises is reported; what it holds it keeps."""

    #: What waits while it fails, for the log: ``letters``.
    name: str

    def turn(self, wait: timedelta) -> int:
        """Do what there is, at most a batch of it, and return how much that was.

        Only a duty that must wait for work does, at most *wait*. It may raise anything: it is
        called again after a pause and must then go on where it stopped.
        """


def may_pass(error: Exception) -> bool:
    """Return True if *error* is not of the entry or job in hand: others may do, it comes again.

    Broker or payload store are away, or this machine lacks memory, threads or files.
    """
    away = isinstance(error, BrokerUnavailable | PayloadStoreUnavailable)
    return away or is_machine_fault(error)


def report(what: str, error: Exception, seldom: Seldom, *, cause: str = "") -> bool:
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
