"""What the handlers of all sides do: call the dependency once, and write down how that went."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache

import httpx

from workers.environment import FOLDER
from workers.journal import Journal

URL = os.environ["BENCH_DEPENDENCY"]
#: Runs of the handler, of which a dependency's breaker may have let none call.
RUNS = Journal(FOLDER / "runs")
HANDLED = Journal(FOLDER / "handled")
GIVEN_UP = Journal(FOLDER / "given-up")


def handle(number: int, guarded: Callable[[int], object] | None = None) -> None:
    """Handle an event by one call, or by *guarded*, which is `call` by way of a breaker."""
    RUNS.write(number)
    (guarded or call)(number)
    HANDLED.write(number)


def call(number: int) -> None:
    """Call the dependency; raises httpx.HTTPError if it is sick."""
    _client().get(f"{URL}/{number}").raise_for_status()


@cache
def _client() -> httpx.Client:
    """Return the process's own client, which keeps its connections."""
    return httpx.Client(trust_env=False, timeout=10)
