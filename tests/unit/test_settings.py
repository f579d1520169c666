"""Settings that are right: what each source may say, and how."""

from __future__ import annotations

from datetime import timedelta

import pytest

from angzarr.settings import load


@pytest.mark.parametrize("given", ["90", "90.0", "PT90S", "PT1M30S"])
def test_a_span_in_the_environment_is_seconds_or_iso_8601(monkeypatch, given):
    monkeypatch.setenv("ANGZARR_ANALYSIS__FIRST_DELAY", given)
    assert load({}).analysis.first_delay == timedelta(seconds=90)


def test_routes_and_policies_come_from_yaml(tmp_path):
    path = tmp_path / "angzarr.yaml"
    path.write_text(
        "routes: {OrderPlaced: [{handler: crm.sync, queue: crm}]}\n"
        "retry: {default: slow, policies: {slow: {base: 3, max_delay: 9, max_attempts: 2}}}\n"
    )
    settings = load({}, path)
    assert settings.routes["OrderPlaced"][0].queue == "crm"
    assert settings.retry.policies["slow"]["base"] == 3


def test_settings_cannot_be_changed_afterwards():
    with pytest.raises(ValueError, match="frozen"):
        load({}).prefix = "other"


@pytest.mark.parametrize(
    "name",
    [
        "ANGZARR_SERVICE_HOST",
        "ANGZARR_SERVICE_PORT_HTTP",
        "ANGZARR_PORT",
        "ANGZARR_REDIS_SERVICE_HOST",
        "ANGZARR_REDIS_PORT_6379_TCP_ADDR",
    ],
)
def test_what_kubernetes_tells_of_a_service_called_angzarr_is_no_misspelt_setting(
    monkeypatch, name
):
    monkeypatch.setenv(name, "10.0.0.1")
    load({})
