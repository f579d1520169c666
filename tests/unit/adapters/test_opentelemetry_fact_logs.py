from __future__ import annotations

import json
import logging
import threading
from decimal import Decimal

import pytest
from opentelemetry._logs import SeverityNumber
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, InMemoryLogRecordExporter
from tests.apps import apps
from tests.contracts.fact_reader import a_cost, an_error
from tests.contracts.facts import AT, Stubborn, a_fact, facts_of

from angzarr.adapters.memory.facts import FanOutFactLog, MemoryFactLog
from angzarr.adapters.opentelemetry import fact_logs
from angzarr.adapters.opentelemetry.fact_logs import OpenTelemetryFactLog
from angzarr.errors import ConfigurationError

TRACE = "0af7651916cd43dd8448eb211c80319c"


class SlowExporter(InMemoryLogRecordExporter):
    """Exports nothing before it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may = threading.Event()

    def export(self, batch):
        self.may.wait(60)
        return super().export(batch)


@pytest.fixture
def exporter():
    return InMemoryLogRecordExporter()


@pytest.fixture
def provider(exporter):
    provider = LoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    yield provider
    provider.shutdown()


@pytest.fixture
def log(provider):
    return OpenTelemetryFactLog(provider)


@pytest.fixture
def exported(log, exporter):
    def exported():
        log.close()
        return [one.log_record for one in exporter.get_finished_logs()]

    return exported


def test_an_error_is_an_event_with_attributes_in_its_trace(log, exported):
    data = {"error_code": "HTTP_503", "retry_attempt": 2, "more": [1, {"n": None}]}
    log.append([an_error("e-1", trace_id=TRACE, tenant_id="t", data=data)])
    (record,) = exported()
    assert record.event_name == "angzarr.fact"
    assert record.severity_number is SeverityNumber.ERROR
    assert record.timestamp == int(AT.timestamp()) * 10**9 + AT.microsecond * 1000
    assert f"{record.trace_id:032x}" == TRACE
    assert dict(record.attributes) == {
        "angzarr.fact.id": "e-1", "angzarr.fact.type": "error", "angzarr.fact.subtype": "transient",
        "angzarr.fact.tenant_id": "t", "angzarr.fact.tool_id": "shop.sync",
        "angzarr.fact.event_id": "e", "angzarr.fact.error_code": "HTTP_503",
        "angzarr.fact.retry_attempt": 2,
    }  # fmt: skip
    assert json.loads(record.body) == data


def test_a_cost_has_its_exact_amount(log, exported):
    log.append([a_cost("c", "0.10")])
    (record,) = exported()
    assert record.severity_number is SeverityNumber.INFO
    assert record.attributes["angzarr.fact.amount"] == "0.10"
    assert record.attributes["angzarr.fact.currency"] == "EUR"


@pytest.mark.parametrize("trace_id", [None, "", "no hex", "f" * 33, "0" * 32])
def test_a_fact_without_a_trace_is_in_none(log, exported, trace_id):
    log.append([a_fact(trace_id=trace_id)])
    assert exported()[0].trace_id == 0


def test_odd_facts_are_exported_and_hold_up_no_other(log, exported, caplog):
    odd = {"money": Decimal("9.90"), "nan": float("nan"), "half": "\ud800", "at": AT, 7: 10**30}
    itself = {}
    itself["itself"] = itself
    facts = [
        a_fact("odd", data=odd), a_fact("loop", data=itself), a_fact("half", tenant_id="\ud800"),
        a_fact("long", tool_id="x" * 9_000), a_fact("stubborn", data={"x": Stubborn()}),
        a_fact("huge", data={"retry_attempt": 2**70}), a_fact("last"),
    ]  # fmt: skip
    with caplog.at_level(logging.ERROR, "angzarr.facts"):
        log.append(facts)
    found = {one.attributes["angzarr.fact.id"]: one for one in exported()}
    assert set(found) | {"stubborn"} == {one.id for one in facts}
    assert found["half"].attributes["angzarr.fact.tenant_id"] == "?"
    assert len(found["long"].attributes["angzarr.fact.tool_id"]) == 1000


def test_an_exporter_that_hangs_holds_up_nothing():
    exporter = SlowExporter()
    provider = LoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(
        BatchLogRecordProcessor(exporter, schedule_delay_millis=1, max_queue_size=10_000)
    )
    log = OpenTelemetryFactLog(provider)
    log.append(facts_of("many", 3_000))  # returns, though nothing was exported
    assert exporter.get_finished_logs() == ()
    exporter.may.set()
    provider.force_flush()
    assert len(exporter.get_finished_logs()) == 3_000
    provider.shutdown()


def test_a_provider_that_fails_keeps_no_fact_from_the_others(caplog):
    class Broken(LoggerProvider):
        def get_logger(self, *_arguments, **_options):
            raise RuntimeError("broken")

        def force_flush(self, _timeout_millis=0):
            raise RuntimeError("broken")

    memory = MemoryFactLog()
    log = FanOutFactLog([OpenTelemetryFactLog(Broken(shutdown_on_exit=False)), memory])
    with caplog.at_level(logging.ERROR, "angzarr.facts"):
        log.append([a_fact("a")])
        log.append([a_fact("b")])
        log.close()
    assert [one.id for one in memory.read()] == ["a", "b"]
    assert caplog.text.count("fact_export_failed") == 1


def test_a_process_without_a_provider_says_so_once(caplog):
    log = OpenTelemetryFactLog()
    with caplog.at_level(logging.WARNING, "angzarr.facts"):
        log.append([a_fact("a")])
        log.append([a_fact("b")])
        log.close()
    assert caplog.text.count("facts_not_exported") == 1


def test_an_api_without_events_is_refused_at_the_start(monkeypatch):
    def old(**options):
        raise TypeError

    monkeypatch.setattr(fact_logs, "LogRecord", old)
    with pytest.raises(ConfigurationError, match="needs a newer OpenTelemetry"):
        OpenTelemetryFactLog()


def test_an_app_exports_its_facts_where_its_settings_say_so(provider, exporter, monkeypatch):
    monkeypatch.setattr(fact_logs, "get_logger_provider", lambda: provider)
    facts = {"url": "memory://exported", "opentelemetry": True}
    with apps(broker="memory://", store="memory://", facts=facts) as make:
        app = make()
        app.ops.facts.append([a_fact("kept")])
        app.ops.facts.close()
    (one,) = exporter.get_finished_logs()
    assert one.log_record.attributes["angzarr.fact.id"] == "kept"
