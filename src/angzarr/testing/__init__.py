"""Tests of handlers, without a server and without waiting: fixtures for pytest.

A conftest.py asks for them by ``pytest_plugins = ["angzarr.testing"]``; docs/how-to/
test-your-handlers.md shows how. Needs the extra ``testing``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from angzarr.testing.clock_by_hand import FakeClock
from angzarr.testing.fixtures import (
    angzarr_app,
    angzarr_chance,
    angzarr_settings,
    angzarr_worker,
    app_under_test,
    aws,
    dead_letters,
    facts,
    fake_clock,
    ledger,
    localstack,
    pytest_addoption,
    running_worker,
)

__all__ = [
    "Aws",
    "DeadLetters",
    "FactsSeen",
    "FakeClock",
    "InProcessWorker",
    "LedgerInTest",
    "Letter",
    "NotSettled",
    "Settled",
    "Waiting",
    "angzarr_app",
    "angzarr_chance",
    "angzarr_settings",
    "angzarr_worker",
    "app_under_test",
    "aws",
    "dead_letters",
    "facts",
    "fake_clock",
    "given",
    "ledger",
    "localstack",
    "pytest_addoption",
    "running_worker",
]

if TYPE_CHECKING:
    from angzarr.testing.cloud import Aws
    from angzarr.testing.decisions import given
    from angzarr.testing.facts_seen import FactsSeen
    from angzarr.testing.ledger_in_test import LedgerInTest
    from angzarr.testing.letters import DeadLetters, Letter
    from angzarr.testing.settled import Settled
    from angzarr.testing.waiting import Waiting
    from angzarr.testing.worker import InProcessWorker, NotSettled
else:  # imported when first used: pytest starts with this module
    from importlib import import_module

    #: Module → the public names it holds.
    _HOMES = {
        "angzarr.testing.cloud": ("Aws",),
        "angzarr.testing.letters": ("DeadLetters", "Letter"),
        "angzarr.testing.decisions": ("given",),
        "angzarr.testing.facts_seen": ("FactsSeen",),
        "angzarr.testing.ledger_in_test": ("LedgerInTest",),
        "angzarr.testing.settled": ("Settled",),
        "angzarr.testing.waiting": ("Waiting",),
        "angzarr.testing.worker": ("InProcessWorker", "NotSettled"),
    }

    def __getattr__(name: str) -> object:
        """Import *name* from its module and keep it."""
        for module, names in _HOMES.items():
            if name in names:
                found = globals()[name] = getattr(import_module(module), name)
                return found
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
