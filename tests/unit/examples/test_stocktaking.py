"""What beat rings for is handled once, however many beats ring."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from celery.schedules import crontab


@pytest.fixture
def stocktaking(examples, monkeypatch):
    made = examples("stocktaking")
    published = []

    def publish(event, *, id):
        published.append((event, id))
        return SimpleNamespace(id=id)

    monkeypatch.setattr(made.app, "publish", publish)
    return made, published


def at(monkeypatch, module, moment):
    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return moment

    monkeypatch.setattr(module, "datetime", Clock)


def test_rings_of_one_minute_are_one_event_and_those_of_the_next_another(stocktaking, monkeypatch):
    module, published = stocktaking
    first = datetime(2026, 11, 24, 12, 0, 0, 20_000, tzinfo=UTC)
    for later in (0, 0.5, 59, 60):
        at(monkeypatch, module, first + timedelta(seconds=later))
        module.ring()
    ids = [given for _, given in published]
    assert ids == ["count-stock-2026-11-24T12:00Z"] * 3 + ["count-stock-2026-11-24T12:01Z"]
    assert {event.minute for event, _ in published[:3]} == {first.replace(microsecond=0)}


def test_beat_rings_by_the_clock_and_not_by_its_own_start(stocktaking):
    module, _ = stocktaking
    (entry,) = module.app.conf.beat_schedule.values()
    assert entry["schedule"] == crontab()
    assert entry["task"] in module.app.tasks
