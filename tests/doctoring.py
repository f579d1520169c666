"""The doctor's findings about apps of tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from celery import Celery
from tests.conftest import manage

from angzarr.doctor.finding import Finding
from angzarr.doctor.report import DoctorReport
from angzarr.doctor_probes import DoctorTarget
from angzarr.doctor_probes.run import examine


def examined(app: Any, **known: Any) -> DoctorReport:
    """Return the report of *app*; *known* is what a person says."""
    return examine(DoctorTarget(app=app, **{"timeout": timedelta(seconds=10), **known}))


def found(report: DoctorReport, check: str) -> list[Finding]:
    """Return the findings of *check*, those that are known."""
    return [one for one in report.findings if one.check.id == check and one.known]


def ids(report: DoctorReport, *severities: str) -> set[str]:
    """Return the checks that found something, of these severities or all."""
    return {
        one.check.id
        for one in report.findings
        if one.known and (not severities or one.severity in severities)
    }


def untold(report: DoctorReport) -> set[str]:
    """Return the checks that could not tell."""
    return {one.check.id for one in report.findings if not one.known}


@contextmanager
def stock_app(broker: str, *, backend: str | None = None, **conf: Any) -> Iterator[Celery]:
    """Yield a Celery app as its own guide has it: one task that retries, one that does not."""
    app = Celery("stock", broker=broker, backend=backend, set_as_current=False)
    app.conf.update(conf)

    @app.task(bind=True, name="stock.pay", shared=False)
    def pay(self: Any, number: int) -> float:
        try:
            return 1 / number
        except ZeroDivisionError as error:
            raise self.retry(exc=error) from error

    @app.task(name="stock.mail", shared=False)
    def mail(number: int) -> int:
        return number

    try:
        yield app
    finally:
        app.close()


@contextmanager
def virtual_host(amqp_url: str, name: str) -> Iterator[str]:
    """Make a virtual host of the test's own; yield its address."""
    parts = urlsplit(amqp_url)
    manage("PUT", f"vhosts/{name}")
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    manage("PUT", f"permissions/{name}/{parts.username}", rights)
    try:
        yield parts._replace(path=f"/{name}").geturl()
    finally:
        manage("DELETE", f"vhosts/{name}")
