"""What the settings of alerts take, refuse and never show."""

from __future__ import annotations

import base64
import sys
import threading
from datetime import timedelta

import pytest
from tests.contracts.alerts import alert_of
from tests.contracts.ledger import letter_of
from tools.polling import wait_until

from angzarr.analysis.alerts.alert import Fate
from angzarr.analysis.alerts.alert_form import AlertSeverity, BodyFormat
from angzarr.errors import ConfigurationError, MissingExtra
from angzarr.settings.settings import load
from angzarr.wiring import alerts as alert_wiring
from angzarr.wiring import ledger as ledger_wiring

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
URL = "https://hooks.test/T0/s3cret-path"


def alerts(**given):
    return load({"analysis": {"alerts": given}}).analysis.alerts


def hook(**given):
    return alerts(webhooks={"ops": {"url": URL, "secrets": [SECRET], **given}}).webhooks["ops"]


def test_by_default_alerts_are_logged_and_go_nowhere_else():
    assert alerts().enabled
    assert alerts().webhooks == {}
    assert alert_wiring.route(alerts())(alert_of()) == ("log",)


def test_a_webhook_gets_errors_unless_it_wants_others():
    given = alerts(webhooks={
        "all": {"url": URL, "secrets": [SECRET], "severities": ["warning", "error"]},
        "ops": {"url": URL, "secrets": [SECRET]},
    })  # fmt: skip
    route = alert_wiring.route(given)
    assert route(alert_of()) == ("log", "all", "ops")
    assert route(alert_of(severity=AlertSeverity.WARNING)) == ("log", "all")


@pytest.mark.parametrize(
    "url",
    ["ftp://hooks.test/", "hooks.test/x", "https://", "https://host:99999/", "https://h o/",
     "https://[::1/", "file:///etc/passwd", "https://host/\r\nx: y", ""],
)  # fmt: skip
def test_only_addresses_of_receivers_are_taken(url):
    with pytest.raises(ConfigurationError, match="must be http://host/… or https://host/…"):
        hook(url=url)


def test_an_address_with_a_password_is_refused_and_not_repeated():
    with pytest.raises(ConfigurationError, match="no user and password") as caught:
        hook(url="https://ada:s3cret@hooks.test/")
    assert "s3cret" not in str(caught.value)


def test_an_address_with_a_fragment_is_refused():
    with pytest.raises(ConfigurationError, match="no #fragment"):
        hook(url=URL + "#x")


@pytest.mark.parametrize(
    "secret",
    ["plain", "whsec_", "whsec_%%%", "whsec_" + base64.b64encode(b"s" * 23).decode(),
     "whsec_" + base64.b64encode(b"s" * 65).decode(), base64.b64encode(b"k" * 32).decode(),
     "whsec_é"],
)  # fmt: skip
def test_a_secret_that_is_none_is_refused_with_the_cure_and_not_repeated(secret):
    with pytest.raises(ConfigurationError, match="openssl rand -base64 32") as caught:
        hook(secrets=[SECRET, secret])
    assert secret not in str(caught.value) or secret == "whsec_"


def test_only_slack_needs_no_secret():
    assert hook(format="slack", secrets=[]).keys() == ()
    with pytest.raises(ConfigurationError, match="secrets are missing"):
        hook(secrets=[])
    assert hook().format is BodyFormat.GENERIC


def test_settings_never_show_an_address_or_a_secret():
    given = alerts(webhooks={"ops": {"url": URL, "secrets": [SECRET]}})
    for shown in (repr(given), str(given), repr(given.model_dump())):
        assert "s3cret-path" not in shown
        assert SECRET not in shown


@pytest.mark.parametrize("name", ["log", "Ops", "", "a b", "x" * 41, "1st"])
def test_a_webhook_has_a_plain_name(name):
    with pytest.raises(ConfigurationError, match="a webhook is named by"):
        alerts(webhooks={name: {"url": URL, "secrets": [SECRET]}})


@pytest.mark.parametrize(
    "given",
    [{"link": "https://d.test/{grup}"}, {"growth_factor": 0.5}, {"growth_factor": float("nan")},
     {"growth_least": 0}, {"window": 0}, {"look_every": 0.1}, {"at_once": 0}, {"many_attempts": 0},
     {"oldest_after": 0}, {"keep": 60, "max_age": 61}, {"oldest": 1}],
)  # fmt: skip
def test_values_that_cannot_work_are_refused(given):
    with pytest.raises(ConfigurationError, match=r"analysis\.alerts"):
        alerts(**given)


def test_quiet_dead_letters_are_no_alerts():
    assert alert_wiring.rules_of(alerts(dead_letters=False)).dead_letter_every is None
    every = alert_wiring.rules_of(alerts(dead_letter_every=60)).dead_letter_every
    assert every == timedelta(minutes=1)


# -- wiring ------------------------------------------------------------------------------------


def test_a_missing_client_is_one_sentence_at_start(monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx", None)
    for name in ("webhook", "poster"):
        monkeypatch.delitem(sys.modules, f"angzarr.adapters.http.{name}", raising=False)
    with pytest.raises(MissingExtra, match=r"angzarr-workers\[webhooks\]"):
        alert_wiring.open_webhooks(alerts(webhooks={"ops": {"url": URL, "secrets": [SECRET]}}))


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_authorities_that_cannot_be_read_are_refused(tmp_path, content):
    path = tmp_path / "ca.pem"
    if content:
        path.write_text(content)
    ops = {"url": URL, "secrets": [SECRET], "ca_certs": str(path)}
    with pytest.raises(ConfigurationError, match=r"webhooks\.ops\.ca_certs cannot be read"):
        alert_wiring.open_webhooks(alerts(webhooks={"ops": ops}))


def test_there_are_no_threads_where_alerts_are_off():
    assert alert_wiring.open_threads(load({"analysis": {"alerts": {"enabled": False}}}), "") == []


def test_the_threads_raise_what_the_ledger_holds_and_deliver_it(tmp_path, caplog):
    settings = load({"ledger": f"sqlite:///{tmp_path / 'ledger.db'}"})
    ledger, store = (
        ledger_wiring.open_part(ledger_wiring.LEDGER, settings, "amqp://"),
        ledger_wiring.open_part(ledger_wiring.ALERTS, settings, "amqp://"),
    )
    ledger.add_failed_event(letter_of())
    threads = alert_wiring.open_threads(settings, "amqp://")
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: "new_group" in caplog.text)
        wait_until(
            lambda: (
                {Fate.DELIVERED}
                == {told.fate for listed in store.get_alerts() for told in listed.deliveries}
            )
        )
    finally:
        for thread in threads:
            thread.end()
        ledger.close()
        store.close()
    assert "dlq_alert" in caplog.text
    assert not any(one.name.startswith("angzarr-alert") for one in threading.enumerate())
