from __future__ import annotations

import json
from datetime import timedelta

import pytest
from tests.contracts.alerts import LEASE, sighting_of
from tests.hand_clock import START

from angzarr.analysis.alerts.alert_form import AlertSeverity
from angzarr.webhooks import PostResult


class FakeSink:
    place = "https://hooks.test"

    def __init__(self, name, **answer):
        self.name = name
        self.answer = PostResult(took=timedelta(seconds=0.25), **answer)
        self.sent = []
        self.closed = False

    def send(self, alert):
        self.sent.append(alert)
        return self.answer

    def close(self):
        self.closed = True


@pytest.fixture
def store(app):
    store = app.open_alerts()
    yield store
    store.close()


def test_alerts_are_listed_with_their_deliveries(run, store):
    assert run("dlq", "alerts", "list").output == "no alerts\n"
    store.raise_([sighting_of("f1", "log", "ops")])
    (delivery,) = store.due("ops", limit=1, lease=LEASE)
    store.failed(delivery, "it answered 500", again_at=START + timedelta(minutes=1))
    shown = run("dlq", "alerts", "list").output
    assert "New group of failures: TimeoutError in orders.sync" in shown
    assert "2026-01-01 12:00 UTC" in shown
    assert "log: waiting, ops: waiting (it answered 500)" in shown


def test_alerts_are_json_for_programs(run, store):
    store.raise_([sighting_of("f1", resolved=True, severity=AlertSeverity.WARNING)])
    (told,) = json.loads(run("dlq", "alerts", "list", "--json").output)["alerts"]
    assert told["key"] == "new_group:group:f1"
    assert (told["resolved"], told["severity"]) == (True, "warning")
    assert told["raised_at"] == "2026-01-01T12:00:00Z"
    assert told["deliveries"] == [
        {"sink": "log", "fate": "waiting", "attempts": 0, "problem": None}
    ]


def test_an_alert_whose_cause_is_not_known_to_be_gone_is_open(run, store):
    store.raise_([sighting_of("f1"), sighting_of("f2", resolved=True)])
    told = json.loads(run("dlq", "alerts", "list", "--json").output)["alerts"]
    assert {one["group"]: one["open"] for one in told} == {"f1": True, "f2": False}


def test_what_a_letter_says_moves_no_terminal(run, store):
    store.raise_([sighting_of("f1", title="\x1b[2J[red]x[/red]")])
    shown = run("dlq", "alerts", "list").output
    assert "\x1b" not in shown
    assert "[red]x[/red]" in shown


def test_a_trial_goes_to_every_webhook_and_says_what_came_back(run, app):
    ops, chat = FakeSink("ops", arrived=True), FakeSink("chat", problem="it answered 404")
    app.webhooks = {"ops": ops, "chat": chat}
    result = run("dlq", "alerts", "test")
    assert result.exit_code == 1
    (alert,) = ops.sent
    assert alert.kind == "test"
    assert f"ops (https://hooks.test): took alert {alert.id} (0.25 s)" in result.output
    assert "chat (https://hooks.test): it answered 404 (0.25 s)" in result.output
    assert ops.closed
    assert chat.closed


def test_a_trial_may_go_to_one(run, app):
    ops, chat = FakeSink("ops", arrived=True), FakeSink("chat", problem="it answered 404")
    app.webhooks = {"ops": ops, "chat": chat}
    result = run("dlq", "alerts", "test", "--url", "ops", "--json")
    assert result.exit_code == 0
    assert json.loads(result.output) == {"ops": {"arrived": True, "problem": None, "seconds": 0.25}}
    assert chat.sent == []


def test_a_trial_without_webhooks_says_how_to_have_one(fails, app):
    assert "analysis.alerts.webhooks" in fails("dlq", "alerts", "test")
    app.webhooks = {"ops": FakeSink("ops", arrived=True)}
    assert "known are: ops" in fails("dlq", "alerts", "test", "--url", "oops", code=2)
