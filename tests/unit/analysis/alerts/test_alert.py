from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.contracts.alerts import alert_of, sighting_of, watch_of
from tests.hand_clock import START

from angzarr.analysis.alerts.alert import AlertKind, Observation, Raised, listed_json, still_open
from sqlite_ledger import SqliteAlerts

LATER = START + timedelta(hours=1)


@pytest.fixture
def store():
    return SqliteAlerts()


def opened(store):
    found = store.get_alerts()
    ids = still_open(store, found)
    return [(one.alert.id in ids) for one in found]


def test_an_alert_is_open_while_its_watch_says_so(store):
    store.raise_([sighting_of("f1")])
    assert opened(store) == [True]
    store.raise_([Observation(watch_of("f1", revision=2, open={}))])
    assert opened(store) == [False]


def test_neither_a_resolution_nor_what_it_resolves_is_open(store):
    store.raise_([sighting_of("f1")])
    over = alert_of("f1", revision=2, resolved=True, raised_at=LATER)
    store.raise_([Observation(watch_of("f1", revision=2), (Raised(over, ()),))])
    assert opened(store) == [False, False]


def test_what_was_told_before_its_cause_came_back_is_over(store):
    store.raise_([sighting_of("f1")])
    again = alert_of("f1", revision=2, raised_at=LATER)
    began = replace(watch_of("f1", revision=2), open={AlertKind.NEW_GROUP: LATER})
    store.raise_([Observation(began, (Raised(again, ()),))])
    assert opened(store) == [True, False]


def test_another_kind_of_the_same_group_is_not_open(store):
    store.raise_([sighting_of("f1", kind=AlertKind.DEAD_LETTER)])
    assert opened(store) == [False]


def test_a_listed_alert_says_how_its_deliveries_stand(store):
    store.raise_([sighting_of("f1", "ops")])
    (one,) = store.get_alerts()
    told = listed_json(one, is_open=True)
    assert (told["open"], told["key"]) == (True, "new_group:group:f1")
    assert told["deliveries"] == [
        {"sink": "ops", "fate": "waiting", "attempts": 0, "problem": None}
    ]
