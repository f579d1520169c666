"""Health wiring: serves probes and metrics of a process, where the settings name a port."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Protocol

from angzarr.adapters.http.health_server import HealthServer, HttpAnswer
from angzarr.runtime.health_report import Report
from angzarr.settings.base import HealthSettings
from angzarr.wiring.telemetry import METRICS


class Health(Protocol):
    """What a process tells of itself; asked from any thread."""

    def live(self) -> Report:
        """Tell whether it moves; else only a restart helps."""

    def ready(self) -> Report:
        """Tell whether it does its work."""


def open_health(settings: HealthSettings, health: Health) -> HealthServer | None:
    """Return what serves *health*, not yet listening; None where no port is set."""
    if settings.port is None:
        return None
    answers = {
        "/livez": _answering(health.live),
        "/readyz": _answering(health.ready),
        "/metrics": METRICS.answer,
    }
    return HealthServer(settings.host, settings.port, answers)


def _answering(probe: Callable[[], Report]) -> Callable[[], HttpAnswer]:
    def answer() -> HttpAnswer:
        report = probe()
        status = HTTPStatus.OK if report.holds else HTTPStatus.SERVICE_UNAVAILABLE
        return HttpAnswer(status, report.body())

    return answer
