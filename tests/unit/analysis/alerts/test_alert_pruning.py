"""Watches go with the groups and jobs that they are about, and not before."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.contracts.alerts import watch_of
from tests.contracts.ledger import letter_of, resolve
from tests.hand_clock import HandClock

from angzarr.adapters.sql.replay_jobs.store import SqlReplayJobs
from angzarr.analysis.alerts.alert import GROUP, JOB, LEDGER, Observation, Watch
from angzarr.analysis.alerts.alert_raiser import ForgottenWatches
from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.replay.job import JobPlan, Selection
from sqlite_ledger import SqliteAlerts, SqliteLedger


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def ledger(clock):
    return SqliteLedger(clock)


@pytest.fixture
def jobs(ledger, clock):
    return SqlReplayJobs(ledger.database, clock)


@pytest.fixture
def alerts(clock):
    return SqliteAlerts(clock)


def forgetting(ledger, jobs, alerts, batch=10):
    return ForgottenWatches(alerts=alerts, groups=ledger, jobs=jobs, batch=batch)


def watched(alerts, *subjects, **fields):
    alerts.raise_([
        Observation(Watch(subject=one, revision=1, **fields)) for one in subjects
    ])  # fmt: skip


def test_a_watch_goes_with_its_group_or_job(ledger, jobs, alerts, clock):
    entry = ledger.add_failed_event(letter_of(fingerprint="f1"))
    job = jobs.begin(Selection(entry_ids=(entry.id,)), JobPlan(), by="ann")
    jobs.cancel(job.id, by="ann")
    watched(alerts, GROUP + "f1", JOB + job.id, LEDGER)
    removal = forgetting(ledger, jobs, alerts)
    assert removal.remove(clock.now()) == (0, False)
    resolve(ledger, entry.id)
    clock.sleep(timedelta(days=90))
    ledger.prune({Status.RESOLVED: clock.now()}, limit=9)
    jobs.prune(clock.now(), limit=9)
    assert removal.remove(clock.now()) == (2, False)
    assert set(alerts.watches([GROUP + "f1", JOB + job.id, LEDGER])) == {LEDGER}


def test_a_watch_whose_end_was_not_told_stays(ledger, jobs, alerts, clock):
    alerts.raise_([Observation(watch_of("gone"))])
    assert forgetting(ledger, jobs, alerts).remove(clock.now()) == (0, False)
    assert alerts.watches([GROUP + "gone"])


def test_batches_go_through_all_watches_and_begin_again(ledger, jobs, alerts, clock):
    ledger.add_failed_events([letter_of(f"e{n}", fingerprint=f"f{n}") for n in range(3)])
    watched(alerts, *(f"{GROUP}f{number}" for number in range(5)))
    removal = forgetting(ledger, jobs, alerts, batch=2)
    assert [removal.remove(clock.now()) for _ in range(3)] == [(0, True), (1, True), (1, False)]
    watched(alerts, GROUP + "a")
    assert removal.remove(clock.now()) == (1, True)
