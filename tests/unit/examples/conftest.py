"""The examples with event books, imported as a user's modules are, and forgotten afterwards."""

from __future__ import annotations

import importlib
import sys

import pytest

from angzarr.aggregates.book import Address, Book
from angzarr.demo import run as demo_example
from angzarr.events.event import Event, event_type_of, to_json

MODULES = (
    "reckoning",
    "card_room",
    "card_room_evening",
    "order_parts",
    "order_desk",
    "order_desk_day",
    "stocktaking",
    "application",
)


@pytest.fixture(scope="module")
def examples():
    """Import an example by its name."""
    kept = list(sys.path)
    demo_example.enter()
    yield importlib.import_module
    sys.path[:] = kept
    for name in MODULES:
        if (module := sys.modules.pop(name, None)) is not None and hasattr(module, "app"):
            module.app.close()


@pytest.fixture
def after():
    """Make an aggregate whose book holds some events."""

    def make(kind, root, *events):
        made = kind(Book(address=Address(kind.domain, root)))
        for event in events:
            made.apply(Event(id="e", type=event_type_of(event), data=to_json(event)))
        return made

    return make
