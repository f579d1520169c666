"""AlertDelivery: brings alerts to one sink, until they arrive or are too old.

It must never note an alert as delivered that the sink has not confirmed. A worker that dies between
the two sends it again under the same id, by which the receiver knows it. A signed test alert shows
whether alerts would arrive.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final, Protocol

from angzarr.analysis.alerts.alert import Alert, Alerts, DueAlert
from angzarr.analysis.alerts.alert_text import trial_alert
from angzarr.analysis.worker.worker import report
from angzarr.clock import Clock
from angzarr.errors import ConfigurationError
from angzarr.resilience.backoff import Jitter, Policy, next_delay
from angzarr.resilience.breaker import Barred, Breakers, BreakerSettings
from angzarr.runtime.failures import LogThrottle
from angzarr.runtime.text import printable
from angzarr.webhooks import PostResult

_log = logging.getLogger("angzarr.analysis")

#: Deliveries taken in one turn. Each may take as long as its sink's time limit.
BATCH: Final = 5
#: How long a batch may take before another worker sends it too.
LEASE: Final = timedelta(minutes=5)
#: How often is looked for alerts to deliver.
LOOK_EVERY: Final = timedelta(seconds=2)
#: Few calls are made, so few are judged, over a longer time; the first that is well is enough.
BREAKER: Final = BreakerSettings(
    window=timedelta(minutes=10), min_calls=5, successes_to_close=1, ramp_up=timedelta(0)
)
#: Pause while the ledger is away: doubled up to the longest, with jitter.
FIRST_WAIT: Final = timedelta(milliseconds=200)
LONGEST_WAIT: Final = timedelta(seconds=30)


class Sink(Protocol):
    """Where alerts go."""

    #: As the settings call it.
    name: str

    @property
    def place(self) -> str:
        """Where it is, for people; without a secret."""

    def send(self, alert: Alert) -> PostResult:
        """Send *alert* and wait for the answer, within a bound. It raises nothing."""

    def close(self) -> None:
        """Let connections go; safe to call twice."""


class DeliveryMeter(Protocol):
    """Counts deliveries; it must not raise, and not take long."""

    def tried(self, sink: str, outcome: str) -> None:
        """Count a try: delivered, failed, gone or given_up."""


def patience(webhook: Policy) -> Policy:
    """The policy *webhook* as alerts are retried: full jitter, without a last attempt."""
    return replace(webhook, jitter=Jitter.FULL, max_attempts=2**31)


@dataclass(slots=True, kw_only=True)
class AlertDelivery:
    """Fulfils `Turns`; for one thread, so that no sink waits for another."""

    sink: Sink
    alerts: Alerts
    breakers: Breakers
    policy: Policy
    #: When an alert that did not arrive is given up.
    max_age: timedelta
    clock: Clock
    chance: Callable[[], float]
    meters: DeliveryMeter
    stopping: Callable[[], bool]
    seldom: LogThrottle = field(default_factory=LogThrottle)
    _wait: timedelta = field(default=FIRST_WAIT, init=False)
    #: The sink said that it wants no more; it is asked again by the next process.
    _gone: bool = field(default=False, init=False)

    def turn(self) -> timedelta:
        """Send a batch; return how long to wait before the next turn. Never raises."""
        try:
            sent = self.deliver()
        except Exception as error:  # noqa: BLE001 - the thread must outlive it: alerts wait
            report(f"alerts for {self.sink.name}", error, self.seldom)
            wait, self._wait = self._wait, min(2 * self._wait, LONGEST_WAIT)
            return wait * (0.5 + self.chance())
        self._wait = FIRST_WAIT
        return timedelta(0) if sent == BATCH else LOOK_EVERY * (0.5 + 0.5 * self.chance())

    def leave(self) -> None:
        """Close the sink and the store."""
        self.sink.close()
        self.alerts.close()

    def deliver(self) -> int:
        """Send due alerts, a batch at most; return their number. Raises LedgerUnavailable."""
        if self._gone or self.breakers.refuses(self.sink.name):
            return 0
        due = self.alerts.due(self.sink.name, limit=BATCH, lease=LEASE)
        for delivery in due:
            if self.stopping() or self._gone:
                self.alerts.release(delivery)
            else:
                self._send(delivery)
        return len(due)

    def _send(self, delivery: DueAlert) -> None:
        permit = self.breakers.admit(self.sink.name, uuid.uuid4().hex)
        if isinstance(permit, Barred):
            self.alerts.release(delivery)
            return
        answer = self.sink.send(delivery.alert)
        self.breakers.record(permit, ok=not answer.ill, took=answer.took)
        if answer.arrived:
            self.alerts.delivered(delivery)
            self.meters.tried(self.sink.name, "delivered")
        else:
            self._failed(delivery, answer)

    def _failed(self, delivery: DueAlert, answer: PostResult) -> None:
        now = self.clock.now()
        if answer.gone:
            self._gone = True
            self._say("alert_sink_gone", "it answered 410 and gets no more alerts; take it out of"
                      " analysis.alerts.webhooks, or fix it and restart")  # fmt: skip
        last_at = delivery.alert.raised_at + self.max_age
        again_at = min(now + self._delay(delivery, answer), last_at)
        late = now >= last_at
        if late and not answer.gone:
            self._say("alert_given_up", f"{answer.problem}; alert {delivery.alert.id} is too old")
        elif not answer.gone and self.seldom.now("failed"):
            self._say("alert_not_delivered", f"{answer.problem}; trying again")
        over = late or answer.gone
        self.alerts.failed(delivery, answer.problem, again_at=None if over else again_at)
        outcome = "gone" if answer.gone else "given_up" if late else "failed"
        self.meters.tried(self.sink.name, outcome)

    def _delay(self, delivery: DueAlert, answer: PostResult) -> timedelta:
        wait = next_delay(
            self.policy, delivery.attempts + 1, self.chance(), least=answer.retry_after
        )
        return wait if wait is not None else self.policy.max_delay

    def _say(self, event: str, what: str) -> None:
        _log.error("%s: %s (%s): %s", event, self.sink.name, self.sink.place, what)


def chosen(sinks: Mapping[str, Sink], name: str | None) -> dict[str, Sink]:
    """The sink called *name*, or all of them; ValueError: there is none of that name.

    Raises ConfigurationError where there are no sinks at all.
    """
    if not sinks:
        msg = (
            "this app has no webhooks: add one to analysis.alerts.webhooks, e.g."
            " ops: {url: https://…, secrets: [whsec_…]}"
        )
        raise ConfigurationError(msg)
    if name is not None and name not in sinks:
        msg = f"there is no webhook {printable(name)!r}; known are: {', '.join(sorted(sinks))}"
        raise ValueError(msg)
    return {known: sink for known, sink in sinks.items() if name in {None, known}}


def try_alert(sinks: Mapping[str, Sink], clock: Clock) -> tuple[Alert, dict[str, PostResult]]:
    """Send one test alert to each of *sinks* and close it; return what came back, by name."""
    alert = trial_alert(clock.now(), uuid.uuid4().hex)
    return alert, {name: _try(sink, alert) for name, sink in sinks.items()}


def _try(sink: Sink, alert: Alert) -> PostResult:
    try:
        return sink.send(alert)
    finally:
        sink.close()
