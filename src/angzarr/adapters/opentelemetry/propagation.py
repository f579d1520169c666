"""Traces across messages: a span around each publish, and its context in the `traceparent`.

Only the OpenTelemetry API is used. Without an SDK no span is made, but a `traceparent` that came
in is still passed on to what the handler publishes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import SpanKind, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from angzarr.adapters.opentelemetry import meters as names

SCOPE = "angzarr"
_W3C = TraceContextTextMapPropagator()

#: The `traceparent` of the delivery in hand, where no span stands for it.
PASSED_ON: ContextVar[str | None] = ContextVar("angzarr_traceparent", default=None)


def current_traceparent() -> str | None:
    """Return the current span as a W3C ``traceparent``, or None outside of any trace."""
    span = trace.get_current_span().get_span_context()
    if not span.is_valid:
        return PASSED_ON.get()
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"


def context_of(traceparent: str | None) -> Context:
    """Return the context that *traceparent* names; an empty one where it is absent or malformed."""
    return _W3C.extract({"traceparent": traceparent} if traceparent else {}, Context())


@contextmanager
def publishing(
    event_type: str,
    domain: str | None = None,
    event_id: str | None = None,
    *,
    provider: TracerProvider | None = None,
) -> Iterator[str | None]:
    """Open a PRODUCER span around a publish; gives the ``traceparent`` for the event's header."""
    if not records(provider or trace.get_tracer_provider()):
        yield current_traceparent()
        return
    said = {
        names.OPERATION_NAME: "publish",
        names.OPERATION_TYPE: "send",
        names.EVENT_TYPE: event_type,
        names.DOMAIN: domain,
        names.EVENT_ID: event_id,
    }
    attributes = {name: value for name, value in said.items() if value is not None}
    with tracer(provider).start_as_current_span(
        f"publish {event_type}", kind=SpanKind.PRODUCER, attributes=attributes
    ):
        yield current_traceparent()


def tracer(provider: TracerProvider | None) -> trace.Tracer:
    """Return our tracer, of the process's provider unless another is given."""
    return _tracer_of(provider or trace.get_tracer_provider())


@lru_cache(maxsize=4)
def _tracer_of(provider: TracerProvider) -> trace.Tracer:
    return provider.get_tracer(SCOPE)


def records(provider: TracerProvider | MeterProvider) -> bool:
    """Return whether *provider* is an SDK's; those of the API (proxy, no-op) keep nothing."""
    return _is_sdk(type(provider))


@lru_cache(maxsize=16)
def _is_sdk(kind: type) -> bool:
    return not kind.__module__.startswith(("opentelemetry.trace", "opentelemetry.metrics"))
