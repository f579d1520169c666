"""Depth wiring: from settings to what asks the dead-letter queues how full they are."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Final, TypeAlias

from angzarr.clock import SystemClock
from angzarr.dead_letters.depth import DepthDuty, DepthWatch
from angzarr.dead_letters.fallback_queue import SPOOL
from angzarr.dead_letters.queue import DeadLetterQueue
from angzarr.runtime.chance import chance
from angzarr.runtime.failures import LogThrottle
from angzarr.runtime.processes import PeriodicThread
from angzarr.runtime.text import printable
from angzarr.settings.dlq_urls import read_url
from angzarr.settings.payloads import PayloadSettings
from angzarr.settings.settings import Settings
from angzarr.wiring import dead_letters as letter_wiring
from angzarr.wiring import stores as wiring

_log = logging.getLogger("angzarr.dead_letters")

#: How often one process asks: each analysis worker and dashboard, and one worker of a fleet.
READER_ASKS_EVERY: Final = timedelta(minutes=1)
WORKER_ASKS_EVERY: Final = timedelta(minutes=2)

#: Returns whose duty the work of a name is, of all workers of a fleet.
DutyOf: TypeAlias = Callable[[str], DepthDuty]


def open_depth_thread(
    settings: Settings, broker: str, domains: Sequence[str], duty_of: DutyOf | None = None
) -> PeriodicThread | None:
    """A thread that asks for depths, and whose process reports them.

    Without *duty_of* it is an analysis worker's, and each one asks. None without measurements:
    `health.port` is not set.
    """
    if settings.health.port is None:
        return None
    watch = open_depth_watch(settings, broker, domains, duty_of)
    reads = duty_of is None
    wiring.depth_meters().observe(watch.depths, SystemClock().now, reads=reads)
    return PeriodicThread("angzarr-depths", lambda _stopping: watch)


def open_depth_watch(
    settings: Settings, broker: str, domains: Sequence[str], duty_of: DutyOf | None = None
) -> DepthWatch:
    """The watch of depths, whose turns a caller takes; without *duty_of* it always asks.

    Raises ConfigurationError where the settings name no place for letters.
    """
    places = _places(settings, broker)
    return DepthWatch(
        places=places,
        domains=tuple(domains),
        clock=SystemClock(),
        chance=chance,
        every=WORKER_ASKS_EVERY if duty_of else READER_ASKS_EVERY,
        failed=partial(_say, LogThrottle()),
        duty=duty_of(_named(places, domains)) if duty_of else None,
    )


def _named(places: Iterable[str], domains: Iterable[str]) -> str:
    """The name of asking *places* for *domains*: apps with one store may have others."""
    asked = json.dumps([sorted(places), sorted(domains)]).encode()
    return f"dlq_depth:{hashlib.sha256(asked).hexdigest()[:16]}"


def _places(settings: Settings, broker: str) -> Mapping[str, Callable[[], DeadLetterQueue]]:
    """An opener for each queue that letters go to; the spool has gauges of its own."""
    given = settings.dlq.model_copy(update={"payloads": PayloadSettings()})  # only counts
    opened = {
        name: partial(letter_wiring.open_backend, name, given, broker)
        for name in letter_wiring.places(settings, broker)
        if name != SPOOL
    }
    if (url := settings.saga_compensation.dead_letter_queue_url) is not None:
        place = read_url(url.get_secret_value())
        own = place.settings(payloads=PayloadSettings())
        opened["saga_compensation"] = partial(letter_wiring.open_backend, place.backend, own, "")
    return opened


def _say(seldom: LogThrottle, place: str, error: Exception) -> None:
    """Say once a minute that a place did not answer; its gauges are missing after a while."""
    if seldom.now(f"{place} {type(error).__name__}"):
        _log.warning("dead_letters_not_counted on %s: %s", place, printable(error))
