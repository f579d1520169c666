"""Modules that the processes of a worker share: each exists, and none of another server is read."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import pytest

from angzarr.settings.settings import Settings
from angzarr.wiring import shared_imports
from angzarr.wiring.shared_imports import import_shared

NAMED = (
    *shared_imports._SHARED,
    *shared_imports._MEASURING,
    *(name for names in shared_imports._SERVERS.values() for name in names),
)


@pytest.mark.parametrize("name", NAMED)
def test_each_module_that_is_named_is_there(name):
    assert find_spec(name) is not None


def test_all_that_a_worker_on_these_servers_needs_is_imported(monkeypatch):
    seen = []
    monkeypatch.setattr(shared_imports.importlib, "import_module", seen.append)
    settings = Settings(store="redis://localhost/0", dlq={"backend": "amqp"})
    import_shared(settings, "amqp://localhost//")
    assert "angzarr.adapters.rabbitmq.transport" in seen
    assert "angzarr.adapters.redis.idempotency" in seen
    assert not any("sqs" in name or "kafka" in name for name in seen)


def test_an_extra_that_is_missing_stops_nothing(monkeypatch):
    monkeypatch.setitem(sys.modules, "angzarr.adapters.prometheus.folder", None)
    import_shared(Settings(store="redis://localhost/0"), "redis://localhost/0")
