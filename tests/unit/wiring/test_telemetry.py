"""Who measures, and what /metrics says where nobody does."""

from __future__ import annotations

import json
import sys
import threading

import pytest
from opentelemetry.sdk.metrics import MeterProvider

from angzarr.wiring import telemetry as metrics_wiring
from angzarr.wiring.telemetry import Metrics


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


def test_without_a_folder_it_says_what_to_name(metrics, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    metrics.begin()
    assert "set TMPDIR to one" in refusal(metrics)
    assert metrics.provider() is None


def test_an_answer_is_made_anew_once_a_second_at_most(metrics, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("angzarr.wiring.telemetry.time.monotonic", lambda: now[0])
    metrics.begin()
    done = metrics.provider().get_meter("x").create_counter("done")
    done.add(1)
    first = metrics.answer()
    done.add(1)
    assert metrics.answer() is first
    now[0] += 1.1
    assert b"done_total 2.0" in metrics.answer().body


def test_an_answer_that_is_never_made_holds_up_nobody_for_ever(metrics, monkeypatch):
    monkeypatch.setattr(metrics_wiring, "WAITED_FOR", 0.01)
    asked, told, hangs = [], threading.Event(), threading.Event()

    def hang(_options):
        told.set()
        hangs.wait(60)
        return []

    metrics.begin()
    metrics.provider().get_meter("x").create_observable_gauge("disk", callbacks=[hang])
    first = threading.Thread(target=lambda: asked.append(metrics.answer()))
    first.start()
    try:
        assert told.wait(60)
        answer = metrics.answer()
        assert answer.status == 503
        assert "still being made" in json.loads(answer.body)["error"]
    finally:
        hangs.set()
        first.join()
    assert asked[0].status == 200
