"""Fact wiring: from settings to fact logs, and to the relay that moves facts out of an outbox."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

from angzarr.facts.fact import FactLog
from angzarr.facts.outbox import SeveralSinks
from angzarr.facts.relay import FactRelay, RelayDuty, SoleDuty
from angzarr.runtime.chance import chance
from angzarr.runtime.processes import PeriodicThread
from angzarr.settings.settings import Settings
from angzarr.wiring.ledger import FACTS, open_part
from angzarr.wiring.stores import Claims, facts_url, sql_engine
from angzarr.wiring.telemetry import METRICS

#: The duty of a fleet to move facts; claims of other apps in the same tables share their outbox.
_DUTY: Final = "fact_relay"


def open_facts(
    settings: Settings, broker: str, claims: Callable[[], Claims] | None = None
) -> FactLog:
    """The fact log: SQL where a URL is set or the broker is embedded, else log lines.

    With the *claims* of a worker, facts for SQL are kept beside them first, and a relay moves them.
    Without them it is a process that may end soon, which leaves an upgrade to workers and commands:
    its thread of facts is not waited for as long as the indexes of a large table take.
    """
    url = facts_url(settings, broker)
    sinks = _logs_beside(settings, url)
    if url and not url.startswith("memory"):
        sql = importlib.import_module("angzarr.adapters.sql.facts.log")
        works = claims is not None
        log = sql.SqlFactLog(sql_engine(url), migrate=settings.facts.migrate, upgrade=works)
        sinks.insert(0, log if claims is None else _carried(claims(), log))
    fan_out = importlib.import_module("angzarr.adapters.memory.facts")
    return sinks[0] if len(sinks) == 1 else fan_out.FanOutFactLog(sinks)


def _logs_beside(settings: Settings, url: str | None) -> list[FactLog]:
    """The places of facts besides the database at *url*; without one there is one at least."""
    sinks: list[FactLog] = []
    if url and url.startswith("memory"):
        sinks.append(importlib.import_module("angzarr.adapters.memory.facts").shared(url))
    if settings.facts.log or (settings.facts.log is None and not url):
        log = importlib.import_module("angzarr.adapters.structlog.own_lines")
        sinks.append(log.StructlogFactLog())
    if settings.facts.opentelemetry:
        exported = importlib.import_module("angzarr.adapters.opentelemetry.fact_logs")
        sinks.append(exported.OpenTelemetryFactLog())
    return sinks


def _carried(claims: Claims, log: FactLog) -> FactLog:
    over = importlib.import_module("angzarr.facts.outbox_log")
    carried: FactLog = over.OutboxFactLog(claims.outbox, otherwise=log, keeps=claims.keeps_facts)
    return carried


class FactRelayThread(PeriodicThread):
    """Runs a `FactRelay`, and closes its connections to the sink."""

    def __init__(self, relay: FactRelay, close: Callable[[], None]) -> None:
        self.relay = relay
        self._close = close
        super().__init__("angzarr-facts", lambda _stopping: relay)

    def end(self) -> None:
        """Move what waits, and take no more turns."""
        super().end()
        self._close()


def open_relay_thread(
    settings: Settings, broker: str, claims: Claims, duty_of: Callable[[str], RelayDuty]
) -> FactRelayThread | None:
    """The thread of a worker that moves facts to SQL; None where there is no such place.

    *duty_of* says which worker of the fleet does.
    """
    url = facts_url(settings, broker)
    if not url or url.startswith("memory") or not claims.keeps_facts():
        return None
    sink = importlib.import_module("angzarr.adapters.sql.facts.sink").SqlFactSink(
        sql_engine(url), migrate=settings.facts.migrate
    )
    relay = FactRelay(outbox=claims.outbox, sink=sink, duty=duty_of(_DUTY), chance=chance)
    _meters().observe(relay.counts)
    return FactRelayThread(relay, sink.close)


def open_act_relay(settings: Settings, broker: str) -> FactRelayThread:
    """The thread of an analysis worker that moves facts of acts out of the ledger's database.

    They go wherever facts go. Each analysis worker has one: what two move is kept once.
    """
    url, sink = facts_url(settings, broker), None
    with ExitStack() as doors:
        outbox = open_part(FACTS, settings, broker, most=settings.facts.most_waiting)
        doors.callback(outbox.close)
        if url and not url.startswith("memory"):
            sink = importlib.import_module("angzarr.adapters.sql.facts.sink").SqlFactSink(
                sql_engine(url), migrate=settings.facts.migrate
            )
            doors.callback(sink.close)
        logs = _logs_beside(settings, url)
        for log in logs:
            doors.callback(log.close)
        relay = FactRelay(
            outbox=outbox, sink=SeveralSinks(sink, logs), duty=SoleDuty(), chance=chance
        )
        _meters().observe(relay.counts)
        return FactRelayThread(relay, doors.pop_all().close)


def _meters() -> Any:
    return importlib.import_module("angzarr.adapters.opentelemetry.fact_meters").FactMeters(
        METRICS.provider()
    )
