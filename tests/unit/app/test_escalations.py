"""What an app does to escalate, and what it refuses at start."""

from __future__ import annotations

import base64
import json
import logging
import sys

import pytest
from tests.escalations import an_escalation

from angzarr.errors import BrokerUnavailable, ConfigurationError, MissingExtra
from angzarr.events import headers as names
from angzarr.events.event import task_id_for
from angzarr.sagas.escalation import BREAKER, HANDLER

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
URL = "https://hooks.test/T0/s3cret-path"


@pytest.fixture
def app_with(tmp_path, make_app):
    def make(*, dlq=None, **saga):
        path = tmp_path / "angzarr.yaml"
        path.write_text(json.dumps({"saga_compensation": saga, "dlq": dlq or {}}))
        return make_app(config=path)

    return make


@pytest.fixture
def signed(app_with):
    return app_with(escalation_webhook_url=URL, escalation_webhook_secrets=[SECRET])


def sent(app):
    """Take the messages from the app's queue."""
    found = []
    with (
        app.connection_for_read() as connection,
        connection.SimpleQueue(app.conf.task_default_queue) as queue,
    ):
        while queue.qsize():
            message = queue.get_nowait()
            message.ack()
            found.append((message.headers, message.payload[0][0]))
    return found


def lines(caplog):
    return [one for one in caplog.records if "saga_escalated" in one.getMessage()]


def test_without_a_webhook_an_escalation_is_one_line_of_the_log(app_with, caplog):
    app = app_with()
    app.escalate(an_escalation())
    (line,) = lines(caplog)
    assert line.levelno == logging.ERROR
    for said in ("saga-order-fulfilment", "o-1", "out of stock", "the aggregate answered nothing"):
        assert said in line.getMessage()
    assert app.handlers.get(HANDLER) is None
    assert sent(app) == []


def test_with_a_webhook_it_is_an_event_of_its_own_too(signed, caplog):
    signed.escalate(an_escalation())
    assert len(lines(caplog)) == 1
    ((headers, data),) = sent(signed)
    assert headers["task"] == HANDLER
    assert headers[names.EVENT_ID] == "esc-1"
    assert headers[names.DOMAIN] == "angzarr.saga-failures"
    assert headers[names.CORRELATION_ID] == "flow-1"
    assert data["saga_name"] == "saga-order-fulfilment"
    assert data["occurred_at"] == "2026-01-01T12:00:00Z"


def test_the_same_escalation_is_the_same_message_each_time(signed):
    signed.escalate(an_escalation())
    signed.escalate(an_escalation())
    one, other = sent(signed)
    assert one[0]["id"] == other[0]["id"] == task_id_for("esc-1", HANDLER)
    assert one[1] == other[1]


def test_it_is_posted_by_the_policy_of_webhooks_behind_a_breaker_of_its_own(app_with):
    app = app_with(escalation_webhook_url=URL, fallback_domain="sagas")
    handler = app.handlers.get(HANDLER)
    assert (handler.domain, handler.operation) == ("sagas", "webhook")
    assert [guard.name for guard in handler.breakers] == [BREAKER]
    assert "sagas" in app.ops.dead_letter_domains()


def test_a_huge_reason_is_cut_before_it_is_logged_and_sent(signed, caplog):
    signed.escalate(an_escalation(rejection_reason="x" * 100_000))
    ((_, data),) = sent(signed)
    assert len(data["rejection_reason"]) == 2000
    assert len(lines(caplog)[0].getMessage()) < 10_000


def test_what_letters_hide_is_not_escalated_either(app_with, caplog):
    app = app_with(dlq={"redact_text": [r"\d{16}"]}, escalation_webhook_url=URL)
    card = "4111111111111111"
    app.escalate(an_escalation(rejection_reason=f"{card} is stolen", compensation_reason=card))
    ((_, data),) = sent(app)
    assert data["rejection_reason"] == "[redacted] is stolen"
    assert card not in json.dumps(data) + caplog.text


def test_a_broker_that_is_away_is_told_to_whoever_escalates(signed, caplog, monkeypatch):
    def away(*_args, **_options):
        raise BrokerUnavailable("away")

    monkeypatch.setattr(signed, "send_task", away)
    with pytest.raises(BrokerUnavailable):
        signed.escalate(an_escalation())
    assert len(lines(caplog)) == 1


# -- at start ----------------------------------------------------------------------------------


def test_a_missing_client_is_one_sentence_at_start(signed, monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx", None)
    monkeypatch.delitem(sys.modules, "angzarr.adapters.http.poster", raising=False)
    with pytest.raises(MissingExtra, match=r"angzarr-workers\[webhooks\]"):
        signed._runtime.check_worker("solo")


def test_without_a_webhook_no_client_is_needed(app_with, monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx", None)
    monkeypatch.delitem(sys.modules, "angzarr.adapters.http.poster", raising=False)
    app_with().ops.check_escalations()


def test_authorities_that_cannot_be_read_are_refused_at_start(app_with, tmp_path):
    app = app_with(
        escalation_webhook_url=URL, escalation_webhook_ca_certs=str(tmp_path / "none.pem")
    )
    with pytest.raises(ConfigurationError, match="escalation_webhook_ca_certs cannot be read"):
        app.ops.check_escalations()


def test_a_webhook_without_secrets_is_warned_of_at_start(app_with, signed, caplog):
    signed.ops.check_escalations()
    assert "escalations_unsigned" not in caplog.text
    app_with(escalation_webhook_url=URL).ops.check_escalations()
    assert "escalations_unsigned" in caplog.text
    assert "s3cret-path" not in caplog.text
