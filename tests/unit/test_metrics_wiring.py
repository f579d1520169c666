"""Who measures, and what /metrics says where nobody does."""

from __future__ import annotations

import json
import sys

import pytest
from opentelemetry.sdk.metrics import MeterProvider

from angzarr import metrics_wiring
from angzarr.metrics_wiring import Metrics


@pytest.fixture
def metrics():
    made = Metrics()
    yield made
    made.end()


def refusal(metrics: Metrics) -> str:
    answer = metrics.answer()
    assert answer.status == 501
    return json.loads(answer.body)["error"]


def test_nothing_is_measured_unless_it_was_begun(metrics):
    assert metrics.provider() is None
    assert refusal(metrics) == "nothing is measured here"


def test_what_is_measured_is_told_as_prometheus_reads_it(metrics):
    metrics.begin()
    assert metrics.provider() is metrics.provider()
    metrics.provider().get_meter("x").create_counter("done").add(3)
    answer = metrics.answer()
    assert (answer.status, answer.content_type[:10]) == (200, "text/plain")
    assert b"\ndone_total 3.0\n" in answer.body


@pytest.mark.parametrize("package", ["prometheus_client", "opentelemetry.sdk"])
def test_without_the_extra_it_says_what_to_install(metrics, monkeypatch, package):
    for name in list(sys.modules):
        if name.startswith(("angzarr.adapters.prometheus", package)):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    metrics.begin()
    assert "pip install 'angzarr-workers[prometheus]'" in refusal(metrics)
    assert metrics.provider() is None


def test_an_sdk_of_the_apps_own_is_left_alone(metrics, monkeypatch):
    monkeypatch.setattr("opentelemetry.metrics.get_meter_provider", MeterProvider)
    metrics.begin()
    assert metrics.provider() is None
    assert "OpenTelemetry SDK of its own" in refusal(metrics)
    assert metrics_wiring._has_own_sdk()
