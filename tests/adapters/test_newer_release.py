"""What a newer release wrote into the ledger stops no older worker's turn, and stays as it was."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from sqlalchemy import select, update
from tests.adapters.sql_ledger import Both
from tests.contracts.alerts import sighting_of
from tests.contracts.jobs import CANARY
from tests.contracts.ledger import LEASE, letter_of
from tests.hand_clock import START, HandClock
from tests.unit.analysis.alerts.test_alert_raiser import Site

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.ledger.alerts import SqlAlerts
from angzarr.adapters.sql.ledger.brake import SqlBrake
from angzarr.adapters.sql.ledger.database import LedgerDatabase
from angzarr.adapters.sql.ledger.schema import (
    ledger_alert_watches,
    ledger_alerts,
    ledger_brake,
    replay_job_items,
    replay_jobs,
    replay_orders,
)
from angzarr.adapters.sql.ledger.tables import METADATA, ledger_entries, ledger_groups
from angzarr.adapters.sql.replay_jobs.store import SqlReplayJobs
from angzarr.analysis.alerts.alert import GROUP as GROUP_SUBJECT
from angzarr.analysis.alerts.alert import AlertKind, body_of
from angzarr.analysis.alerts.alert_form import AlertSeverity, BodyFormat
from angzarr.analysis.ledger.emergency_stop import Scope
from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.ledger.export import seen_json
from angzarr.analysis.ledger.operator_actions import Act, Verb
from angzarr.analysis.ledger.replay_options import Expectation, ReplayOrder
from angzarr.analysis.ledger.transition import replayable
from angzarr.analysis.replay.job import JobPlan, JobStatus, Selection
from angzarr.analysis.replay.replay import ReplayTargets
from angzarr.dashboard.api.shapes import EntryShape

JOB_LEASE = timedelta(seconds=15)


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request, tmp_path):
    if request.param == "sqlite":
        engine = build_engine(f"sqlite:///{tmp_path / 'ledger.db'}")
    else:
        engine = build_engine(request.getfixturevalue("postgresql_url"))
        METADATA.drop_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def ledger(engine, clock):
    return Both(LedgerDatabase(engine), clock)


@pytest.fixture
def jobs(engine, ledger, clock):
    return SqlReplayJobs(LedgerDatabase(engine), clock)


@pytest.fixture
def alerts(engine, clock):
    return SqlAlerts(LedgerDatabase(engine), clock)


@pytest.fixture
def newer(engine):
    """Write as a newer release does, over the rows of *table* where one is *what*."""

    def write(table, what, **values):
        with engine.begin() as connection:
            assert connection.execute(update(table).where(what).values(**values)).rowcount == 1

    return write


@pytest.fixture
def row(engine):
    def read(column, what):
        with engine.connect() as connection:
            return connection.execute(select(column).where(what)).scalar_one()

    return read


# -- entries and groups --------------------------------------------------------------------------


@pytest.fixture
def parked(ledger, newer):
    """An entry in a status, of a class and held for a reason that this release does not know."""
    first, _ = ledger.add_failed_events([letter_of("e1"), letter_of("e2")])
    words = {"status": "parked", "failure_class": "quota_spent", "hold": "quota"}
    newer(ledger_entries, ledger_entries.c.id == first.id, **words, wake_at=START)
    return first


def test_an_entry_in_a_newer_status_wakes_nobody_and_the_others_go_on(ledger, clock, parked):
    clock.sleep(timedelta(hours=1))
    assert [one.event_id for one in ledger.due(limit=9, lease=LEASE)] == ["e2"]
    page = ledger.get_failed_events(status=None, limit=9)
    assert {one.event_id: one.status for one in page.entries} == {"e1": "parked", "e2": "failed"}
    assert ledger.get_failure_stats().by_status[Status.FAILED]


def test_an_entry_in_a_newer_status_is_shown_as_it_is(ledger, parked):
    entry = ledger.open(parked.id).entry
    told = json.loads(EntryShape.model_validate(seen_json(entry, {})).model_dump_json())
    assert (told["status"], told["failure_class"]) == ("parked", "quota_spent")


def test_an_entry_in_a_newer_status_is_neither_replayed_nor_acted_on(ledger, jobs, parked):
    entry = ledger.open(parked.id).entry
    assert not replayable(entry)
    assert ledger.mark_retrying(entry.id, 1, revision=entry.revision, by="me", lease=LEASE) is None
    acts = [Act(entry_id=entry.id, revision=entry.revision, verb=verb) for verb in Verb]
    assert ledger.act(acts, by="ann") == [False] * len(acts)
    assert jobs.begin(Selection(entry_ids=(entry.id,)), CANARY, by="ann").total == 0
    assert ledger.open(parked.id).entry == entry


def test_a_letter_that_tells_nothing_new_leaves_a_newer_status(ledger, parked):
    again = letter_of("e1", id="another")
    (entry,) = ledger.add_failed_events([again])
    assert (entry.status, entry.hold, entry.occurrences) == ("parked", "quota", 2)


def test_a_replay_that_failed_leads_out_of_a_newer_status(ledger, parked):
    (entry,) = ledger.add_failed_events([letter_of("e1", replay=1)])
    assert (entry.status, entry.failure_class) == (Status.FAILED, None)


def test_a_group_in_a_newer_status_is_listed_and_alerting_goes_on(ledger, newer, alerts, parked):
    words = {"status": "delegated", "failure_class": "quota_spent"}
    newer(ledger_groups, ledger_groups.c.fingerprint == parked.fingerprint, **words)
    assert ledger.open_group(parked.fingerprint).status == "delegated"
    site = Site()
    worker = site.worker(groups=ledger, ledger=ledger, alerts=alerts)
    assert AlertKind.NEW_GROUP not in {alert.kind for alert in worker.look()}
    assert alerts.watches([GROUP_SUBJECT + parked.fingerprint])


# -- alerts --------------------------------------------------------------------------------------


@pytest.fixture
def watched(ledger, alerts, newer, row):
    """A group that a newer release watches for a kind of its own; returns what it stored."""
    (entry,) = ledger.add_failed_events([letter_of("e1")])
    site = Site()
    worker = site.worker(groups=ledger, ledger=ledger, alerts=alerts, clock=ledger._clock)
    worker.look()
    this = ledger_alert_watches.c.subject == GROUP_SUBJECT + entry.fingerprint
    state = json.loads(row(ledger_alert_watches.c.state, this))
    for part in ("said", "open"):
        state[part]["quota_spent"] = START.isoformat()
    newer(ledger_alert_watches, this, state=json.dumps(state))
    return worker, entry, lambda: json.loads(row(ledger_alert_watches.c.state, this))


def test_a_newer_kind_of_alert_outlives_an_older_workers_looks(ledger, alerts, clock, watched):
    worker, entry, state = watched
    clock.sleep(timedelta(days=2))
    ledger.add_failed_events([letter_of("e2"), letter_of("e3")])
    worker.look()
    entries = ledger.get_failed_events(status=None).entries
    acts = [Act(entry_id=one.id, revision=one.revision, verb=Verb.SKIP) for one in entries]
    assert all(ledger.act(acts, by="ann"))
    clock.sleep(timedelta(minutes=1))
    resolved = [one for one in worker.look() if one.resolved]
    assert {one.kind for one in resolved} <= set(AlertKind)
    assert resolved
    for part in ("said", "open"):
        assert state()[part]["quota_spent"] == START.isoformat()
    assert list(state()["open"]) == ["quota_spent"]
    assert [one.subject for one in alerts.open_watches(limit=9)] == [
        GROUP_SUBJECT + entry.fingerprint
    ]
    before = alerts.open_watches(limit=9)
    clock.sleep(timedelta(days=1))
    worker.look()
    assert alerts.open_watches(limit=9) == before, "it is left alone"


def test_a_newer_kind_of_alert_is_delivered_as_it_is_and_keeps_none_back(alerts, newer, row):
    alerts.raise_([sighting_of("f1"), sighting_of("f2")])
    this = ledger_alerts.c.id == sighting_of("f1").raised[0].alert.id
    told = json.loads(row(ledger_alerts.c.said, this))
    told |= {"kind": "quota_spent", "severity": "critical", "budget": 7}
    newer(ledger_alerts, this, said=json.dumps(told))
    due = alerts.due("log", limit=9, lease=LEASE)
    found = {one.alert.kind: one.alert for one in due}
    assert found.keys() == {"quota_spent", AlertKind.NEW_GROUP}
    alert = found["quota_spent"]
    assert (alert.severity, alert.title) == (AlertSeverity.ERROR, told["title"])
    sent = {form: body_of(alert, form) for form in BodyFormat}
    assert json.loads(sent[BodyFormat.GENERIC])["data"]["kind"] == "quota_spent"
    assert len(alerts.get_alerts()) == 2


# -- replay jobs ---------------------------------------------------------------------------------


@pytest.fixture
def two_jobs(ledger, jobs):
    """A job that a newer release will have written, and another."""
    entries = ledger.add_failed_events([letter_of(f"e{n}") for n in range(3)])
    mine, *others = [one.id for one in entries]
    novel = jobs.begin(Selection(entry_ids=(mine,)), CANARY, by="ann")
    plain = jobs.begin(Selection(entry_ids=tuple(others)), CANARY, by="ann")
    return novel, plain


@pytest.mark.parametrize(
    "words",
    [
        {"status": "throttled", "sent": 1},
        {"plan": '{"stages": [1], "hours": "8-18"}'},
        {"plan": '{"stages": [1], "sequence": "at_seven"}'},
    ],
)
def test_a_job_that_a_newer_release_runs_in_its_own_way_is_left_to_it(
    jobs, newer, row, two_jobs, words
):
    novel, plain = two_jobs
    newer(replay_jobs, replay_jobs.c.id == novel.id, **words)
    for _ in range(2):
        assert [one.id for one in jobs.take("old", lease=JOB_LEASE, limit=1)] == [plain.id]
    assert row(replay_jobs.c.engine, replay_jobs.c.id == novel.id) in {"", None}
    assert {one.id for one in jobs.get_jobs().jobs} == {novel.id, plain.id}


def test_a_plan_says_only_what_it_asks_for_so_that_the_release_before_takes_its_job(
    ledger, jobs, row, two_jobs
):
    novel, _ = two_jobs
    (entry,) = ledger.add_failed_events([letter_of("e9")])
    plan = JobPlan(stages=(1,), sequence=Expectation.FRESH_SEQUENCE)
    fresh = jobs.begin(Selection(entry_ids=(entry.id,)), plan, by="ann")
    said = [
        json.loads(row(replay_jobs.c.plan, replay_jobs.c.id == one.id)) for one in (novel, fresh)
    ]
    assert [one.get("sequence") for one in said] == [None, "fresh_sequence"]
    assert [one.keys() & {"config", "original"} for one in said] == [set(), set()]
    assert jobs.open_job(fresh.id).plan == plan


def test_an_order_that_a_newer_release_gave_is_not_sent_in_another_way(ledger, newer, row):
    (entry,) = ledger.add_failed_events([letter_of("e1")])
    order = ReplayOrder(sequence=Expectation.FRESH_SEQUENCE)
    begun = {"revision": entry.revision, "by": "me", "lease": LEASE, "order": order}
    assert ledger.mark_retrying(entry.id, 1, **begun)
    this = replay_orders.c.entry_id == entry.id
    assert row(replay_orders.c.sequence, this) == "fresh_sequence"
    newer(replay_orders, this, sequence="at_seven")
    detail = ledger.open(entry.id)
    assert (detail.order.sequence, str(detail.order)) == ("at_seven", "at_seven")
    targets = ReplayTargets(tasks={"orders.sync"}, queues={"orders"})
    assert "'at_seven'" in targets.problem(detail.failure, detail.order)


def test_an_order_of_the_release_before_is_sent_as_it_is(ledger, newer):
    (entry,) = ledger.add_failed_events([letter_of("e1")])
    order = ReplayOrder(to_queue="other")
    assert ledger.mark_retrying(
        entry.id, 1, revision=entry.revision, by="me", lease=LEASE, order=order
    )
    newer(replay_orders, replay_orders.c.entry_id == entry.id, sequence=None)
    assert ledger.open(entry.id).order == order


def test_the_entries_of_a_job_in_a_newer_status_are_still_its_own(jobs, newer, two_jobs):
    novel, plain = two_jobs
    newer(replay_jobs, replay_jobs.c.id == novel.id, status="throttled")
    newer(replay_job_items, replay_job_items.c.job_id == novel.id, state="delayed")
    (item,) = jobs.items(novel.id)
    assert item.state == "delayed"
    jobs.cancel(plain.id, by="ann")
    assert jobs.begin(Selection(), CANARY, by="bob").total == 2
    assert not jobs.cancel(novel.id, by="bob")
    assert jobs.open_job(novel.id).status == "throttled"


def test_what_a_newer_plan_says_outlives_a_persons_pause(jobs, newer, row, two_jobs):
    novel, _ = two_jobs
    plan = json.dumps({"stages": [1], "hours": "8-18"})
    newer(replay_jobs, replay_jobs.c.id == novel.id, plan=plan)
    assert jobs.pause(novel.id, by="bob")
    assert jobs.open_job(novel.id).status is JobStatus.PAUSED
    assert row(replay_jobs.c.plan, replay_jobs.c.id == novel.id) == plan


def test_a_replay_whose_entry_is_in_a_newer_status_has_not_ended_yet(ledger, jobs, newer, two_jobs):
    _, plain = two_jobs
    jobs.take("old", lease=JOB_LEASE, limit=9)
    begun, *_ = jobs.begin_next(plain.id, "old", limit=1, most_replays=9)
    entry = ledger.open(begun.entry_id).entry
    ledger.mark_retrying(entry.id, 1, revision=entry.revision, by="job", lease=LEASE)
    jobs.reconcile(plain.id, "old")
    newer(ledger_entries, ledger_entries.c.id == entry.id, status="parked")
    job = jobs.reconcile(plain.id, "old")
    assert (job.sent, job.answered, job.unanswered) == (1, 0, 0)


# -- the brake -----------------------------------------------------------------------------------


def test_a_brake_that_holds_something_newer_holds_all(engine, clock, newer):
    brake = SqlBrake(LedgerDatabase(engine), clock)
    brake.put(Scope.AUTOMATIC, by="ann")
    newer(ledger_brake, ledger_brake.c.by == "ann", scope="tenant")
    assert brake.state().holds(clock.now()) is Scope.ALL
    assert brake.put(Scope.AUTOMATIC, by="bob").scope is Scope.ALL
