"""Facts as OpenTelemetry logs: each is an event ``angzarr.fact`` in the trace of its delivery.

Only the OpenTelemetry API is used: the app's logger provider says where they go. With its batch
processor an append puts a record into a queue in memory, so that no exporter holds a delivery up.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from opentelemetry import trace
from opentelemetry._logs import LoggerProvider, LogRecord, SeverityNumber, get_logger_provider
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from angzarr.adapters.opentelemetry.meters import SCOPE
from angzarr.analysis.ledger.export import json_text
from angzarr.errors import ConfigurationError
from angzarr.facts.fact import Fact
from angzarr.facts.resolution import ERROR
from angzarr.runtime.failures import LogThrottle

_log = logging.getLogger("angzarr.facts")

EVENT: Final = "angzarr.fact"
#: Fields of a fact that are attributes of the same name behind the prefix.
_NAMES: Final = (
    "id", "type", "subtype", "tenant_id", "entity_id", "tool_id", "event_id", "asset_id",
    "config_id", "config_version", "resolves",
)  # fmt: skip
#: What of its data is an attribute, too: what people look for. All of the data is the body.
_DATA: Final = ("error_code", "error_type", "retry_attempt", "delay_ms", "reason")
#: Characters of an attribute.
_LONGEST: Final = 1000
_HEX: Final = 16
#: Milliseconds that `close` waits for what is queued.
_CLOSE_WITHIN: Final = 2000


class OpenTelemetryFactLog:
    """Fulfils `FactLog` by the logger of *provider*, or of the one that the app has set up.

    A fact appended twice is two records with one ``angzarr.fact.id``. Raises ConfigurationError
    for a release of the API that has no events.
    """

    def __init__(self, provider: LoggerProvider | None = None) -> None:
        self._given = provider
        self._failures, self._silence = LogThrottle(), LogThrottle()
        try:
            LogRecord(context=Context(), event_name=EVENT)
        except TypeError as error:
            msg = "facts.opentelemetry needs a newer OpenTelemetry: install opentelemetry-sdk>=1.37"
            raise ConfigurationError(msg) from error

    def append(self, facts: Sequence[Fact], /, *, before_ack: bool = False) -> None:  # noqa: ARG002 - queued at once
        """Emit *facts* in order; raises nothing."""
        try:
            provider = self._provider()
            logger = provider.get_logger(SCOPE)
        except Exception:  # noqa: BLE001 - a provider of the app's must not fail a delivery
            self._tell()
            return
        for fact in facts:
            try:
                logger.emit(record_of(fact))
            except Exception:  # noqa: BLE001 - the same; its data may do anything when read
                self._tell()

    def carry(self, facts: Sequence[Fact], /, *, before_ack: bool = False) -> tuple[str, ...]:
        """Emit *facts*: they need no relay."""
        self.append(facts, before_ack=before_ack)
        return ()

    def lines(self, facts: Sequence[Fact], /) -> tuple[str, ...]:  # noqa: ARG002 - no claim keeps any
        """None of them."""
        return ()

    def flush(self, within: timedelta, /) -> bool:  # noqa: ARG002 - it does not wait
        """True at once: no act waits for an exporter, which may drop records anyway."""
        return True

    def close(self) -> None:
        """Let what is queued go, for two seconds; the provider stays the app's."""
        flush = getattr(self._provider(), "force_flush", None)
        if flush is not None:
            with suppress(Exception):
                flush(_CLOSE_WITHIN)

    def _provider(self) -> LoggerProvider:
        """The provider, looked up each time: the app may set one up late, or after a fork."""
        found = self._given or get_logger_provider()
        if not hasattr(found, "force_flush") and self._silence.now():
            _log.warning("facts_not_exported: this process has no OpenTelemetry logger provider:"
                         " set one up, or switch facts.opentelemetry off")  # fmt: skip
        return found

    def _tell(self) -> None:
        if self._failures.now():
            _log.exception("fact_export_failed: OpenTelemetry did not take it")


def record_of(fact: Fact) -> LogRecord:
    """*fact* as a log record."""
    is_error = fact.type == ERROR
    return LogRecord(
        timestamp=int(fact.at.timestamp() * 1_000_000) * 1000,
        context=_context(fact.trace_id),
        severity_number=SeverityNumber.ERROR if is_error else SeverityNumber.INFO,
        severity_text="ERROR" if is_error else "INFO",
        event_name=EVENT,
        body=json_text(dict(fact.data)),
        attributes=_attributes(fact),
    )


def _attributes(fact: Fact) -> dict[str, Any]:
    said = {name: getattr(fact, name) for name in _NAMES} | _told(fact.data)
    if (cost := fact.cost) is not None:
        said |= {"amount": f"{cost.amount:f}", "currency": cost.currency}
        said |= {"from_entity": cost.from_entity, "to_entity": cost.to_entity}
    return {f"{EVENT}.{name}": _cut(value) for name, value in said.items() if value is not None}


def _told(data: Mapping[str, Any]) -> dict[str, Any]:
    found = ((name, data.get(name)) for name in _DATA)
    return {name: value for name, value in found if isinstance(value, str | int)}


def _cut(value: str | int) -> str | int:
    """*value* as exporters can write it: neither long nor with half a character."""
    if isinstance(value, str):
        return value[:_LONGEST].encode("utf-8", "replace").decode()
    return value if -(2**63) <= value < 2**63 else str(value)


def _context(trace_id: str | None) -> Context:
    """The context of a trace: of its span only the trace is known."""
    try:
        number = int(trace_id or "", 16)
    except ValueError:
        number = 0
    if number.bit_length() > 8 * _HEX:
        number = 0
    span = SpanContext(number, 0, is_remote=True, trace_flags=TraceFlags(0))
    return trace.set_span_in_context(NonRecordingSpan(span), Context())
