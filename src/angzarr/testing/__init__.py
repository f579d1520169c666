"""Tests of handlers, without a server and without waiting: fixtures for pytest.

A conftest.py asks for them by ``pytest_plugins = ["angzarr.testing"]``; docs/how-to/
test-your-handlers.md shows how. Needs the extra ``testing``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from angzarr.testing.clock import FakeClock
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
    "WaitingMessage",
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
    from angzarr.testing.letters import DeadLetters, LedgerInTest, Letter
    from angzarr.testing.settled import FactsSeen, Settled, WaitingMessage
    from angzarr.testing.worker import InProcessWorker, NotSettled
else:  # imported when first used: pytest starts with this module
    from importlib import import_module

    #: Module → the public names it holds.
    _HOMES = {
        "angzarr.testing.cloud": ("Aws",),
        "angzarr.testing.decisions": ("given",),
        "angzarr.testing.letters": ("DeadLetters", "LedgerInTest", "Letter"),
        "angzarr.testing.settled": ("FactsSeen", "Settled", "WaitingMessage"),
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
