"""Apps on the memory broker."""

from __future__ import annotations

import pytest
from tests.apps import apps


@pytest.fixture(scope="session")
def facts_url(tmp_path_factory):
    """Where their facts are kept: by default that would be the folder that tests are run from."""
    return f"sqlite:///{tmp_path_factory.mktemp('facts')}/facts.db"


@pytest.fixture
def make_app(facts_url, monkeypatch):
    monkeypatch.setenv("ANGZARR_FACTS__URL", facts_url)
    with apps(broker="memory://", store="memory://") as make:
        yield make
