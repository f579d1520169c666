"""Apps on the memory broker."""

from __future__ import annotations

import pytest
from tests.apps import apps


@pytest.fixture(scope="session", autouse=True)
def patient():
    """A machine that stalls for half a minute fails no test."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("angzarr.testing.worker.TIMEOUT", 300.0)
        yield


@pytest.fixture(scope="session")
def facts_url(tmp_path_factory):
    return f"sqlite:///{tmp_path_factory.mktemp('facts')}/facts.db"


@pytest.fixture
def facts_elsewhere(facts_url, monkeypatch):
    """Keep facts out of the folder that tests are run from, where they are kept by default."""
    monkeypatch.setenv("ANGZARR_FACTS__URL", facts_url)


@pytest.fixture
def make_app(facts_elsewhere):
    with apps(broker="memory://", store="memory://") as make:
        yield make
