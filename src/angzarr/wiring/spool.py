"""Spool wiring: who takes letters out of the spool again, and who counts them."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from angzarr.clock import SystemClock
from angzarr.dead_letters.queue import DeadLetterQueue
from angzarr.dead_letters.spool_forwarder import Forwarder
from angzarr.errors import ConfigurationError
from angzarr.runtime.processes import PeriodicThread
from angzarr.settings.dead_letters import SpoolSettings
from angzarr.settings.settings import Settings
from angzarr.wiring import dead_letters as letter_wiring
from angzarr.wiring import stores as wiring

#: How long a stop waits for a batch: a queue that is away costs its time-out, and what is forwarded
#: twice does no harm.
_PATIENCE: Final = timedelta(milliseconds=500)


def open_forwarder(settings: Settings, broker: str, path: Path | None = None) -> Forwarder:
    """Return what forwards from the spool, or the one at *path*, to the targets before it.

    Connects when it is first used. Raises ConfigurationError where no spool is configured.
    """
    told = wiring.letter_meters().forwarded
    return Forwarder(
        spool=open_folder(path or spool_path(settings)),
        queue=letter_wiring.open_chain(settings, broker, confirmed=told),
        chance=random.random,
    )


def open_forwarder_thread(settings: Settings, broker: str) -> PeriodicThread | None:
    """Return a thread that forwards and whose process tells how full the spool is, if any."""
    if not letter_wiring.has_spool(settings):
        return None

    def make(_stopping: Callable[[], bool]) -> Forwarder:
        return open_forwarder(settings, broker)

    folder = open_folder(spool_path(settings))
    wiring.letter_meters().observe(folder.tally, SystemClock().now)
    return PeriodicThread("angzarr-forwarder", make, patience=_PATIENCE)


def open_folder(path: Path) -> Any:
    """Return the way out of the spool at *path*."""
    return importlib.import_module("angzarr.adapters.files.spool").FolderOfLetters(path)


def open_queue(given: SpoolSettings, *, create_missing: bool) -> DeadLetterQueue:
    """Return the spool at the path that *given* names as a queue that letters are moved from."""
    module = importlib.import_module("angzarr.adapters.files.spool_queue")
    queue: DeadLetterQueue = module.SpoolQueue(
        Path(str(given.path)), max_bytes=given.max_bytes, create_missing=create_missing
    )
    return queue


def spool_path(settings: Settings) -> Path:
    """Return where the spool is; raises ConfigurationError where none is configured."""
    if letter_wiring.has_spool(settings):
        return Path(str(settings.dlq.spool.path))
    msg = (
        "this app has no spool: its letters are held while their queue is away; to have one set"
        " dlq: {targets: [kafka, spool], spool: {path: /var/lib/angzarr/spool, durable: true}}"
    )
    raise ConfigurationError(msg)
