"""Alerts over HTTP and on their page."""

from __future__ import annotations

from datetime import timedelta

import pytest

from angzarr.analysis.alerts.alert import Observation
from angzarr.dashboard.alerts import EVERY
from angzarr.dashboard.api.route import PREFIX
from angzarr.settings.dashboard import Role
from angzarr.webhooks import PostResult
from contracts.alerts import sighting_of, watch_of
from dashboard_caller import api, browser
from dashboard_world import World

ALERTS = f"{PREFIX}/alerts"


@pytest.fixture
def client(world):
    world.alerts.raise_([sighting_of("f1", "ops"), sighting_of("f2", title="<b>over</b>")])
    world.alerts.raise_([Observation(watch_of("f2", revision=2, open={}))])
    return api(world)


def groups(answer):
    return [one["group"] for one in answer.json()["alerts"]]


def test_alerts_are_listed_open_or_over(world, client):
    assert sorted(groups(client.get(ALERTS))) == ["f1", "f2"]
    assert groups(client.get(f"{ALERTS}?open=true")) == ["f1"]
    assert groups(client.get(f"{ALERTS}?open=false")) == ["f2"]
    assert len(groups(client.get(f"{ALERTS}?limit=1"))) == 1
    (told,) = api(world, Role.VIEWER).get(f"{ALERTS}?open=true").json()["alerts"]
    assert told["deliveries"][0]["sink"] == "ops"


def test_the_page_shows_what_is_open_first_and_links_to_its_group(world, client):
    page = browser(world, Role.VIEWER).get("/alerts").text
    open_, over = page.split("Told and over")
    assert 'href="/groups/f1"' in open_
    assert "&lt;b&gt;over&lt;/b&gt;" in over
    assert "/groups/f2" not in open_
    assert "ops: waiting" in open_


class Sink:
    place = "https://hooks.test"
    closed = False

    def __init__(self, name, **answer):
        self.name = name
        self.answer = PostResult(took=timedelta(seconds=0.25), **answer)

    def send(self, alert):
        self.alert = alert
        return self.answer

    def close(self):
        self.closed = True


def test_a_trial_says_what_came_back(world, client):
    assert client.post(f"{ALERTS}/test", json={}).status_code == 409
    ops, chat = Sink("ops", arrived=True), Sink("chat", problem="it answered 404")
    world.webhooks = {"ops": ops, "chat": chat}
    assert client.post(f"{ALERTS}/test", json={}).json() == {
        "ops": {"arrived": True, "problem": None, "seconds": 0.25},
        "chat": {"arrived": False, "problem": "it answered 404", "seconds": 0.25},
    }
    assert ops.alert.kind == "test"
    assert ops.closed
    assert chat.closed
    world.clock.sleep(EVERY)
    assert list(client.post(f"{ALERTS}/test", json={"name": "ops"}).json()) == ["ops"]
    unknown = client.post(f"{ALERTS}/test", json={"name": "oops"})
    assert (unknown.status_code, "chat, ops" in unknown.text) == (422, True)


def test_test_alerts_have_a_pace_that_all_processes_share(world, client):
    ops = Sink("ops", arrived=True)
    world.webhooks = {"ops": ops}
    sent, again = ops.send, {"Idempotency-Key": "k"}
    told = []
    ops.send = lambda alert: told.append(alert) or sent(alert)
    assert client.post(f"{ALERTS}/test", json={}).status_code == 200
    other = World(clock=world.clock)  # another process at the same ledger
    other.writes, other.webhooks = world.writes, world.webhooks
    for one in (client, api(world, Role.APPROVER), api(other)):
        refused = one.post(f"{ALERTS}/test", json={}, headers=again)
        assert (refused.status_code, refused.json()["type"][-8:]) == (429, "too-many")
        assert 0 < int(refused.headers["Retry-After"]) <= EVERY.total_seconds()
    assert len(told) == 1
    world.clock.sleep(EVERY)
    assert client.post(f"{ALERTS}/test", json={}, headers=again).status_code == 200


def test_a_test_alert_that_is_sent_to_nobody_takes_no_turn(world, client):
    world.webhooks = {"ops": Sink("ops", arrived=True)}
    assert client.post(f"{ALERTS}/test", json={"name": "oops"}).status_code == 422
    assert client.post(f"{ALERTS}/test", json={}).status_code == 200
