"""What a process tells of itself: its metrics, and the port for probes that shows them."""

from __future__ import annotations

import atexit
import importlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from http import HTTPStatus
from typing import Any, Final, Protocol

from angzarr.adapters.http.health_server import HealthServer, HttpAnswer
from angzarr.errors import MissingExtra
from angzarr.runtime.health_report import Report
from angzarr.runtime.processes import OncePerProcess, PeriodicThread
from angzarr.settings.base import HealthSettings

_log = logging.getLogger("angzarr.health")

_EXTRA: Final = "prometheus"
#: How often a parent takes up what ended children left, also where nobody asks.
_TAKEN_UP_EVERY: Final = timedelta(seconds=30)
#: Seconds for which an answer is given again.
TOLD_FOR: Final = 1.0
#: Seconds that one who asks waits for another's answer: no thread must wait for a disk for ever.
WAITED_FOR: Final = 4.0
_HANGS: Final = "an earlier answer is still being made: check the disk of TMPDIR and of the spool"
_ELSEWHERE: Final = (
    "this app has set up an OpenTelemetry SDK of its own, which has all metrics: read them there"
)


class Metrics:
    """All metrics of a process tree; begun by its parent, before it forks."""

    def __init__(self) -> None:
        self._folder: Any = None
        self._why_not = "nothing is measured here"
        self._pid = 0
        #: Whether this process measures for another one, or for none.
        self._joined = False
        self._here = OncePerProcess(self._measure)
        self._threads: list[PeriodicThread] = []
        self._told: HttpAnswer | None = None
        self._told_at = 0.0
        self._lock = threading.Lock()

    # -- in the parent -------------------------------------------------------------------------

    def begin(self) -> None:
        """Measure from now on, unless the app does or the extra is missing."""
        if self._folder is not None or self._joined:  # for another worker of this process
            return
        self._pid = os.getpid()
        try:
            folder = _adapter("angzarr.adapters.prometheus.folder")
        except MissingExtra as missing:
            self._why_not = str(missing)
            return
        if _has_own_sdk():
            self._why_not = _ELSEWHERE
            return
        try:
            self._folder = folder.Folder()
        except OSError as error:
            self._why_not = f"metrics need a folder: set TMPDIR to one: {error}"
            _log.warning("metrics_not_measured: %s", self._why_not)
            return
        atexit.register(self._folder.remove)
        self._here.get()  # now: a fork must not come amid it
        self._start("angzarr-metrics", _TakingUp(self._folder.total))

    def folder(self) -> str | None:
        """Where processes leave what they measured; None: nothing is measured."""
        return None if self._folder is None else str(self._folder.path)

    def join(self, folder: str | None) -> None:
        """Measure for a supervisor, into its *folder*; None: measure nothing."""
        self._joined = True
        if folder is not None:
            self._folder = _adapter("angzarr.adapters.prometheus.folder").Folder(of=folder)
            self._here.get()

    def end(self) -> None:
        """Measure no more; for tests and embedded workers."""
        folder, self._folder = self._folder, None
        self._told = None
        self._here.forget()
        for thread in self._threads:
            thread.end()
        self._threads = []
        if folder is not None and os.getpid() == self._pid:
            atexit.unregister(folder.remove)
            folder.remove()

    def answer(self) -> HttpAnswer:
        """The measurements of all processes, as Prometheus reads them; or the reason for none.

        It is made anew once a second at most, and for one at a time.
        """
        if not self._lock.acquire(timeout=WAITED_FOR):
            return HttpAnswer(
                HTTPStatus.SERVICE_UNAVAILABLE, json.dumps({"error": _HANGS}).encode()
            )
        try:
            if self._told is None or time.monotonic() - self._told_at > TOLD_FOR:
                self._told, self._told_at = self._answer(), time.monotonic()
            return self._told
        finally:
            self._lock.release()

    def _answer(self) -> HttpAnswer:
        folder = self._folder
        if folder is None or folder.is_elsewhere():
            said = {"error": _ELSEWHERE if folder is not None else self._why_not}
            return HttpAnswer(HTTPStatus.NOT_IMPLEMENTED, json.dumps(said).encode())
        total = folder.total()
        if (here := self._here.get()) is not None:
            total.add(here.snapshot())
        snapshot = _adapter("angzarr.adapters.prometheus.snapshot")
        return HttpAnswer(HTTPStatus.OK, snapshot.text_of(total), snapshot.CONTENT_TYPE)

    # -- in every process ----------------------------------------------------------------------

    def provider(self) -> Any:
        """The meter provider of this process; None: the app's own SDK, if there is one."""
        here = None if self._folder is None else self._here.get()
        return None if here is None else here.provider

    def flush(self) -> None:
        """Leave what a child that ends has measured."""
        if os.getpid() != self._pid and self._folder is not None and (here := self._here.made()):
            here.leave(self._folder)

    def _measure(self) -> Any:
        if _has_own_sdk():
            self._folder.leave_word()
            return None
        adapter = _adapter("angzarr.adapters.prometheus.folder")
        here, folder = adapter.ProcessMeter(), self._folder
        if os.getpid() != self._pid:
            self._threads = []
            self._start("angzarr-metrics", adapter.SnapshotTurns(lambda: here.leave(folder)))
        return here

    def _start(self, name: str, turns: Any) -> None:
        thread = PeriodicThread(name, lambda _stopping: turns)
        self._threads.append(thread)
        thread.start()


class _TakingUp:
    def __init__(self, take_up: Callable[[], object]) -> None:
        self._take_up = take_up

    def turn(self) -> timedelta:
        """Take up what ended children left."""
        self._take_up()
        return _TAKEN_UP_EVERY

    def leave(self) -> None:
        """End."""


#: Those of this process tree.
METRICS: Final = Metrics()


def _has_own_sdk() -> bool:
    traces = importlib.import_module("angzarr.adapters.opentelemetry.traces")
    metrics = importlib.import_module("opentelemetry.metrics")
    return bool(traces.records(metrics.get_meter_provider()))


def _adapter(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("prometheus_client", "opentelemetry"):
            raise
        names = {"prometheus_client": "prometheus-client", "opentelemetry": "opentelemetry-sdk"}
        raise MissingExtra(names[package], _EXTRA) from error


class Health(Protocol):
    """What a process tells of itself; asked from any thread."""

    def live(self) -> Report:
        """The report whether it moves; else only a restart helps."""

    def ready(self) -> Report:
        """The report whether it does its work."""


def open_health(settings: HealthSettings, health: Health) -> HealthServer | None:
    """The server of *health*, not yet listening; None where no port is set."""
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
