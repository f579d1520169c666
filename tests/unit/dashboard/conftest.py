"""The world of the dashboard's tests, and an operator who asks it as a program or a person."""

from __future__ import annotations

import pytest

from dashboard_caller import api, browser
from dashboard_world import World


@pytest.fixture
def world():
    return World()


@pytest.fixture
def client(world):
    return api(world)


@pytest.fixture
def person(world):
    return browser(world)


@pytest.fixture
def group(world):
    """The fingerprint of a group of three entries."""
    (entry, *_) = world.file(3)
    return entry.fingerprint
