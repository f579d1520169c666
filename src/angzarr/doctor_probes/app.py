"""The app itself: its settings, without asking a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from angzarr.adapters.celery import doctor as examination
from angzarr.doctor import celery_rules, letter_rules, refusal_rules, stock_rules, time_rules
from angzarr.doctor.finding import Finding
from angzarr.doctor.probe import refusing
from angzarr.doctor_probes.target import Patient
from angzarr.wiring import startup_checks as checks
from angzarr.wiring.ledger import ledger_url


def findings(patient: Patient) -> Iterator[Finding]:
    """Return what the settings of *patient* lose, and what a worker would refuse."""
    app, at = patient.app, patient.at
    seen = examination.celery_seen(app, at, ours=patient.ours)
    yield from refusal_rules.findings(seen)
    yield from celery_rules.findings(seen)
    yield from time_rules.findings(
        examination.times_seen(
            app,
            at,
            ours=patient.ours,
            grace=patient.grace,
            longest_delay=patient.longest_delay,
        )
    )
    if not patient.ours:
        yield from stock_rules.findings(examination.stock_seen(app, at))
        return
    for check in _refusals(patient):
        yield from refusing(check, at)
    if ledger_url(patient.settings, patient.broker_url) is None:
        yield letter_rules.ledger(at)


def _refusals(patient: Patient) -> tuple[Callable[[], object], ...]:
    """Return what a worker, or the analysis worker, checks at start without asking a server."""
    app = patient.app
    return (
        lambda: checks.check_configured(patient.settings, patient.broker_url),
        app.check_escalations,
        app.check_books,
        app.check_ordering,
        lambda: checks.check_compensations(app.known_handlers()),
        app.replay_targets,
    )
