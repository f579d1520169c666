"""Traces across messages: a span around each publish, and one CONSUMER span for each attempt.

The `traceparent` header carries the publisher's context. The span of an attempt is as long as the
handler ran; it ends when the delivery is settled, for only then its outcome is true. It belongs to
the publisher's trace, or to a span that is open around it, and links to the publisher: a trace
holds all attempts of an event, side by side (spec O3). The hook feeds the counters of O1 as well.

Only the OpenTelemetry API is used. Without an SDK no span is made, but a `traceparent` that came
in is still passed on to what the handler publishes.

Span attributes follow the messaging semantic conventions (1.43). They are written out here because
the conventions' package marks them as incubating and moves them; docs/reference/metrics.md lists
them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import lru_cache, partial
from types import TracebackType
from typing import Any, Final

from opentelemetry import context as contexts
from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from angzarr.adapters.opentelemetry.meters import SCOPE, Meters
from angzarr.clock import Clock, SystemClock
from angzarr.delivery.delivery import (
    WORDS,
    DeadLettered,
    Delivery,
    Outcome,
    Postponed,
    Retried,
    Skipped,
)

SYSTEM: Final = "messaging.system"
DESTINATION: Final = "messaging.destination.name"
MESSAGE_ID: Final = "messaging.message.id"
CONVERSATION_ID: Final = "messaging.message.conversation_id"
BATCH_COUNT: Final = "messaging.batch.message_count"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
ERROR_TYPE: Final = "error.type"

EVENT_ID: Final = "angzarr.event.id"
EVENT_TYPE: Final = "angzarr.event.type"
DOMAIN: Final = "angzarr.domain"
HANDLER: Final = "angzarr.handler"
ATTEMPT: Final = "angzarr.attempt"
REPLAY: Final = "angzarr.replay"
OUTCOME: Final = "angzarr.outcome"
ERROR_CATEGORY: Final = "angzarr.error.category"
ERROR_CODE: Final = "angzarr.error.code"
LETTER_ID: Final = "angzarr.letter.id"
REASON: Final = "angzarr.reason"
DELAY: Final = "angzarr.delay_ms"

#: kombu's names of brokers → the conventions' names.
SYSTEMS: Final = {"amqp": "rabbitmq", "pyamqp": "rabbitmq", "sqs": "aws_sqs"}

_W3C = TraceContextTextMapPropagator()

#: The `traceparent` of the delivery in hand, where no span stands for it.
PASSED_ON: ContextVar[str | None] = ContextVar("angzarr_traceparent", default=None)


def current_traceparent() -> str | None:
    """The current span as a W3C ``traceparent``, None outside of any trace."""
    span = trace.get_current_span().get_span_context()
    if not span.is_valid:
        return PASSED_ON.get()
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"


def context_of(traceparent: str | None) -> Context:
    """The context that *traceparent* names; an empty one where it is absent or malformed."""
    return _W3C.extract({"traceparent": traceparent} if traceparent else {}, Context())


@contextmanager
def publishing(
    event_type: str,
    domain: str | None = None,
    event_id: str | None = None,
    *,
    provider: TracerProvider | None = None,
) -> Iterator[str | None]:
    """Open a PRODUCER span around a publish; yields the ``traceparent`` for the event's header."""
    if not records(provider or trace.get_tracer_provider()):
        yield current_traceparent()
        return
    said = {
        OPERATION_NAME: "publish",
        OPERATION_TYPE: "send",
        EVENT_TYPE: event_type,
        DOMAIN: domain,
        EVENT_ID: event_id,
    }
    attributes = {name: value for name, value in said.items() if value is not None}
    with tracer(provider).start_as_current_span(
        f"publish {event_type}", kind=SpanKind.PRODUCER, attributes=attributes
    ):
        yield current_traceparent()


def tracer(provider: TracerProvider | None) -> trace.Tracer:
    """Our tracer, of the process's provider unless another is given."""
    return _tracer_of(provider or trace.get_tracer_provider())


@lru_cache(maxsize=4)
def _tracer_of(provider: TracerProvider) -> trace.Tracer:
    return provider.get_tracer(SCOPE)


def records(provider: TracerProvider | MeterProvider) -> bool:
    """True if *provider* is an SDK's; those of the API (proxy, no-op) keep nothing."""
    return _is_sdk(type(provider))


@lru_cache(maxsize=16)
def _is_sdk(kind: type) -> bool:
    return not kind.__module__.startswith(("opentelemetry.trace", "opentelemetry.metrics"))


#: How soon an SDK that is set up late is noticed, in seconds.
LOOK_EVERY = 1.0

_NOTHING = nullcontext()
#: What OpenTelemetry calls the parts of a recorded exception.
_MESSAGE = "exception.message"
_STACK = "exception.stacktrace"


class OpenTelemetryHook:
    """Fulfils `Hook`. Providers set later are found; without any it does next to nothing.

    *broker* is kombu's name of the transport, for ``messaging.system``.
    """

    def __init__(
        self,
        *,
        broker: str = "celery",
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._system = SYSTEMS.get(broker.lower(), broker.lower())
        self._tracer_provider = tracer_provider
        self._meter_provider = meter_provider
        self._meters = Meters(metrics.get_meter(SCOPE, meter_provider=meter_provider))
        self._clock = clock or SystemClock()
        self._look_again = 0.0
        self._traces = self._measures = False

    def attempt(self, delivery: Delivery, /) -> AbstractContextManager[object]:
        """A context that is the span while the handler runs."""
        if (left := _OPEN.get()) is not None:
            self._end_unsettled(left)
        if time.monotonic() >= self._look_again:
            self._look_for_an_sdk()
        if not (self._measures or self._traces or delivery.event.traceparent):
            return _NOTHING
        span = self._begin(delivery, "process") if self._traces else None
        run = TracedRun(delivery, self._meters if self._measures else None, span)
        _OPEN.set(run)
        return run

    @contextmanager
    def batch(self, deliveries: Sequence[Delivery], /) -> Iterator[None]:
        """A context that is the span of one call for *deliveries*; it links to their publishers."""
        if time.monotonic() >= self._look_again:
            self._look_for_an_sdk()
        first = deliveries[0]
        began = time.perf_counter()
        with self._span_of_batch(first, deliveries) if self._traces else _NOTHING:
            yield
        if self._measures:
            self._meters.ran(first, (time.perf_counter() - began) * 1000)

    def _span_of_batch(
        self, first: Delivery, deliveries: Sequence[Delivery]
    ) -> AbstractContextManager[object]:
        senders = (
            trace.get_current_span(context_of(delivery.event.traceparent)).get_span_context()
            for delivery in deliveries
        )
        return tracer(self._tracer_provider).start_as_current_span(
            f"process {first.message.queue}",
            kind=SpanKind.CONSUMER,
            attributes={
                SYSTEM: self._system,
                DESTINATION: first.message.queue,
                BATCH_COUNT: len(deliveries),
                OPERATION_NAME: "process",
                OPERATION_TYPE: "process",
                HANDLER: first.handler,
            },
            links=[Link(sender) for sender in senders if sender.is_valid],
        )

    def settled(self, delivery: Delivery, outcome: Outcome, /) -> None:
        """Count *outcome* and end the span of its attempt."""
        if time.monotonic() >= self._look_again:
            self._look_for_an_sdk()
        if self._measures:
            self._meters.settled(delivery, outcome, self._clock.now())
        run = _OPEN.get()
        if run is not None and run.delivery.token == delivery.token:
            _OPEN.set(None)
            _end(run.span, outcome, run.ended_at)
        elif self._traces and isinstance(outcome, Retried | DeadLettered):
            # No handler ran, or it died with its process: the trace shows that all the same.
            _end(self._begin(delivery, "settle"), outcome, None)

    def _look_for_an_sdk(self) -> None:
        """Find out who records; seldom, for without an SDK the API asks the environment."""
        self._look_again = time.monotonic() + LOOK_EVERY
        self._traces = records(self._tracer_provider or trace.get_tracer_provider())
        self._measures = records(self._meter_provider or metrics.get_meter_provider())

    def _begin(self, delivery: Delivery, operation: str) -> Span:
        sender = trace.get_current_span(context_of(delivery.event.traceparent))
        sent_by = sender.get_span_context()
        around = trace.get_current_span().get_span_context().is_valid
        return tracer(self._tracer_provider).start_span(
            f"{operation} {delivery.message.queue}",
            context=None if around else trace.set_span_in_context(sender),
            kind=SpanKind.CONSUMER,
            attributes=self._attributes(delivery, operation),
            links=[Link(sent_by)] if sent_by.is_valid else None,
        )

    def _attributes(self, delivery: Delivery, operation: str) -> dict[str, Any]:
        event = delivery.event
        said = {
            SYSTEM: self._system,
            DESTINATION: delivery.message.queue,
            MESSAGE_ID: delivery.message.id,
            CONVERSATION_ID: event.correlation_id,
            OPERATION_NAME: operation,
            OPERATION_TYPE: operation,
            EVENT_ID: event.id,
            EVENT_TYPE: event.type,
            DOMAIN: event.domain,
            HANDLER: delivery.handler,
            ATTEMPT: delivery.attempt,
            REPLAY: delivery.position.replay or None,
            LETTER_ID: delivery.letter_id,
        }
        return {name: value for name, value in said.items() if value is not None}

    def _end_unsettled(self, run: TracedRun) -> None:
        """End what was left open here: its message was given back and runs elsewhere."""
        if run.span is not None:
            run.span.set_attribute(OUTCOME, "given_back")
            run.span.end(run.ended_at)
        _OPEN.set(None)


class TracedRun:
    """One run of a handler: its span is current meanwhile, and outlives it until it is settled."""

    __slots__ = ("_began", "_meters", "_reset", "delivery", "ended_at", "span")

    def __init__(self, delivery: Delivery, meters: Meters | None, span: Span | None) -> None:
        self.delivery = delivery
        self.span = span
        self.ended_at: int | None = None
        self._meters = meters
        self._reset: Callable[[], None] | None = None
        self._began = 0.0

    def __enter__(self) -> None:
        if self.span is not None:
            self._reset = partial(
                contexts.detach, contexts.attach(trace.set_span_in_context(self.span))
            )
        elif self.delivery.event.traceparent is not None:
            self._reset = partial(PASSED_ON.reset, PASSED_ON.set(self.delivery.event.traceparent))
        self._began = time.perf_counter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        ran = time.perf_counter() - self._began
        if self._reset is not None:
            self._reset()
        if self.span is not None:
            self.ended_at = time.time_ns()
        if self._meters is not None:
            self._meters.ran(self.delivery, ran * 1000)


#: The run whose delivery this thread has not settled yet; of several that share it, each its own.
_OPEN: Final[ContextVar[TracedRun | None]] = ContextVar("angzarr_open_run", default=None)


def _end(span: Span | None, outcome: Outcome, at: int | None) -> None:
    """Write *outcome* into *span* and end it as of *at*, in nanoseconds since the epoch."""
    if span is None:
        return
    span.set_attribute(OUTCOME, WORDS[type(outcome)])
    match outcome:
        case Retried(error=error, seen=seen, delay=delay, shown=shown):
            span.set_attribute(DELAY, round(delay.total_seconds() * 1000))
            told = {} if shown is None else {_MESSAGE: shown, _STACK: ""}
            _fail(span, error, seen.category.value, seen.code, at, told=told)
        case DeadLettered(error=error, letter=letter):
            span.set_attributes({LETTER_ID: letter.id, REASON: letter.reason.value})
            told = {_MESSAGE: letter.error_message, _STACK: letter.error_stack}
            _fail(span, error, letter.category, letter.error_code, at, told=told)
        case Postponed(why=why) | Skipped(reason=why):
            span.set_attribute(REASON, why)
    span.end(at)


def _fail(
    span: Span,
    error: Exception,
    category: str,
    code: str,
    at: int | None,
    *,
    told: Mapping[str, str],
) -> None:
    """Record *error*; *told* says it in words that hide what a letter hides."""
    kind = type(error).__qualname__
    said = {ERROR_CATEGORY: category, ERROR_CODE: code, **told}
    span.record_exception(error, attributes=said, timestamp=at)
    span.set_attribute(ERROR_TYPE, kind)
    text = told.get(_MESSAGE, error)
    span.set_status(Status(StatusCode.ERROR, f"{kind}: {text}"[:500]))
