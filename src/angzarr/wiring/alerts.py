"""Alert wiring: from settings to what raises alerts and what delivers them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from functools import cache
from typing import Any, Final

from angzarr.adapters.memory.breaker import InProcessBreakers
from angzarr.analysis.alerts.alert import Alert
from angzarr.analysis.alerts.alert_delivery import BREAKER, AlertDelivery, Sink, patience
from angzarr.analysis.alerts.alert_raiser import AlertRaiser
from angzarr.analysis.alerts.alert_state import AlertRules
from angzarr.analysis.alerts.alert_text import Speaker
from angzarr.clock import SystemClock
from angzarr.errors import ConfigurationError
from angzarr.resilience.policies import named, policies_from
from angzarr.runtime.chance import chance
from angzarr.runtime.processes import PeriodicThread
from angzarr.settings.analysis import AlertSettings, WebhookSettings
from angzarr.settings.settings import Settings
from angzarr.wiring import stores as wiring
from angzarr.wiring.ledger import ALERTS, GROUPS, LEDGER, REPLAY_JOBS, open_part

#: The sink that every app has.
LOG: Final = "log"
#: How long a stop waits for an alert that is being sent; it is sent again under its id.
_PATIENCE: Final = timedelta(milliseconds=500)


def open_threads(settings: Settings, broker: str) -> list[PeriodicThread]:
    """A thread that raises alerts and one for each sink; none where alerts are off.

    Raises MissingExtra, ConfigurationError.
    """
    if not settings.analysis.alerts.enabled:
        return []
    sinks = [_log_sink(), *open_webhooks(settings.analysis.alerts).values()]

    def alerting(_stopping: Callable[[], bool]) -> AlertRaiser:
        return _alerting(settings, broker)

    threads = [PeriodicThread("angzarr-alerting", alerting, patience=_PATIENCE)]
    for sink in sinks:

        def delivery(stopping: Callable[[], bool], sink: Sink = sink) -> AlertDelivery:
            return _delivery(settings, broker, sink, stopping)

        threads.append(PeriodicThread(f"angzarr-alerts-{sink.name}", delivery, patience=_PATIENCE))
    return threads


def open_webhooks(given: AlertSettings) -> dict[str, Sink]:
    """The webhooks that *given* names, by name; raises MissingExtra without the client."""
    return {name: _webhook(name, webhook) for name, webhook in given.webhooks.items()}


@cache
def meters() -> Any:
    """The counters of this process's alerts."""
    return wiring.alert_meters()


def route(given: AlertSettings) -> Callable[[Alert], tuple[str, ...]]:
    """A function that names the sinks of an alert: the log, and webhooks that want its severity."""

    def sinks(alert: Alert) -> tuple[str, ...]:
        wanting = (n for n, hook in given.webhooks.items() if alert.severity in hook.severities)
        return (LOG, *wanting)

    return sinks


def rules_of(given: AlertSettings) -> AlertRules:
    """The rules by which alerts are raised."""
    return AlertRules(
        window=given.window,
        growth_factor=given.growth_factor,
        growth_least=given.growth_least,
        repeat_after=given.repeat_after,
        dead_letter_every=given.dead_letter_every if given.dead_letters else None,
        many_attempts=given.many_attempts,
        oldest_after=given.oldest_after,
    )


def _alerting(settings: Settings, broker: str) -> AlertRaiser:
    given, doors = settings.analysis.alerts, ExitStack()
    ledger = open_part(LEDGER, settings, broker)
    alerts = open_part(ALERTS, settings, broker)
    groups = open_part(GROUPS, settings, broker)
    jobs = open_part(REPLAY_JOBS, settings, broker)
    for one in (ledger, alerts, groups, jobs):
        doors.callback(one.close)
    return AlertRaiser(
        groups=groups,
        ledger=ledger,
        jobs=jobs,
        alerts=alerts,
        rules=rules_of(given),
        speaker=Speaker(given.link or ""),
        route=route(given),
        clock=SystemClock(),
        chance=chance,
        meters=meters(),
        every=given.look_every,
        keep=given.keep,
        at_once=given.at_once,
        tell_resolved=given.resolved,
        close=doors.close,
    )


def _delivery(
    settings: Settings, broker: str, sink: Sink, stopping: Callable[[], bool]
) -> AlertDelivery:
    return AlertDelivery(
        sink=sink,
        alerts=open_part(ALERTS, settings, broker),
        breakers=InProcessBreakers(default=BREAKER),
        policy=patience(named(policies_from(settings.retry.policies), "webhook")),
        max_age=settings.analysis.alerts.max_age,
        clock=SystemClock(),
        chance=chance,
        meters=meters(),
        stopping=stopping,
    )


def _log_sink() -> Sink:
    sink: Sink = importlib.import_module("angzarr.adapters.structlog.own_lines").LogSink()
    return sink


def _webhook(name: str, given: WebhookSettings) -> Sink:
    adapter = wiring.adapter("angzarr.adapters.http.poster", "httpx")
    try:
        sink: Sink = adapter.Webhook(
            name,
            given.url.get_secret_value(),
            keys=given.keys(),
            form=given.format,
            ca_certs=given.ca_certs,
        )
    except OSError as error:
        msg = f"analysis.alerts.webhooks.{name}.ca_certs cannot be read as certificates"
        raise ConfigurationError(msg) from error
    return sink
