"""Forks: none while another thread imports a module.

A forked child has one thread, but all locks of its parent's threads, held as they were. Where one
of them was in the middle of an import, that module stays locked in the child, and whoever imports
it there waits for ever: a slot is lost, and its message with it until the worker ends. CPython
renews its global import lock in a child, but not the lock of each module (the same hang, seen by
others: iloveitaly/celery-healthcheck#45).
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - first: see `guard`
import logging
import os
import threading
import time
from functools import cache
from importlib import _bootstrap  # where the locks of modules are
from typing import Final

_log = logging.getLogger("angzarr.worker")

#: Seconds that a fork waits for imports under way: a large client library takes one or two.
PATIENCE: Final = 10.0
_LOOK_EVERY: Final = 0.001


def wait_for_imports(patience: float = PATIENCE) -> bool:
    """Return once no other thread imports; False if one still does after *patience* seconds."""
    deadline = time.monotonic() + patience
    while _others_import():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK_EVERY)
    return True


def _others_import() -> bool:
    locks = [alive() for alive in list(getattr(_bootstrap, "_module_locks", {}).values())]
    ours = (None, threading.get_ident())
    return any(lock is not None and lock.owner not in ours for lock in locks)


def _before() -> None:
    if not wait_for_imports():
        _log.error(
            "forked_amid_import: another thread has imported a module for %g s; should the new"
            " process need that module it will hang", PATIENCE,
        )  # fmt: skip


@cache
def guard() -> None:
    """Guard all forks of this process from now on; hooks that are registered later run before.

    In a child they run in the order in which they were registered. OpenTelemetry's SDK uses a pool
    of threads there, whose lock is free again only once the hook of its module has run: that
    module is imported here, before most can set up an SDK.
    """
    os.register_at_fork(before=_before)
