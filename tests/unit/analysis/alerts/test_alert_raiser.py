from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.contracts.ledger import letter_of, resolve
from tests.hand_clock import START, HandClock
from tests.unit.analysis.alerted import (
    HOUR,
    MINUTE,
    FakeGroups,
    FakeJobs,
    group_of,
    grown,
    job_of,
)

from angzarr.analysis.alerts.alert import AlertKind
from angzarr.analysis.alerts.alert_form import AlertSeverity
from angzarr.analysis.alerts.alert_raiser import (
    JOB_PAGES,
    JOBS,
    LOOKED_INTO,
    OLDEST,
    SETTLED,
    AlertRaiser,
    ForgottenWatches,
)
from angzarr.analysis.alerts.alert_state import AlertRules
from angzarr.analysis.alerts.alert_text import Speaker
from angzarr.analysis.ledger.group import Amendment, GroupStatus
from angzarr.analysis.ledger.operator_actions import Act, Verb
from angzarr.analysis.replay.job import JobStatus
from angzarr.errors import LedgerUnavailable
from sqlite_ledger import SqliteAlerts, SqliteLedger


class FakeMeters:
    def __init__(self) -> None:
        self.alerts = []
        self.depth = None

    def raised(self, alert):
        self.alerts.append(alert)

    def show(self, depth):
        self.depth = depth


class Site:
    """An analysis worker's alerting, on stores that others may share."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.groups, self.jobs = FakeGroups(), FakeJobs()
        self.ledger = SqliteLedger(self.clock)
        self.alerts = SqliteAlerts(self.clock)
        self.closed = []

    def worker(self, **fields) -> AlertRaiser:
        known = {
            "groups": self.groups,
            "ledger": self.ledger,
            "jobs": self.jobs,
            "alerts": self.alerts,
            "rules": AlertRules(dead_letter_every=None),
            "speaker": Speaker(),
            "route": lambda _alert: ("log",),
            "clock": self.clock,
            "chance": lambda: 0.5,
            "meters": FakeMeters(),
            "every": timedelta(seconds=5),
            "keep": timedelta(days=90),
            "at_once": 10,
            "tell_resolved": True,
            "close": lambda: self.closed.append(True),
        }
        return AlertRaiser(**{**known, **fields})


@pytest.fixture
def site():
    return Site()


def storms_last(raised):
    return sorted(raised, key=lambda one: one.kind is AlertKind.STORM)


def said(alerts):
    return [(alert.kind, alert.fingerprint) for alert in alerts]


def groups_of(count, **fields):
    return [group_of(f"{number:016x}", **fields) for number in range(count)]


def test_a_new_group_is_raised_once_and_counted(site):
    site.groups.put(group_of("f1"))
    worker = site.worker()
    assert said(worker.look()) == [(AlertKind.NEW_GROUP, "f1")]
    assert worker.look() == []
    assert said(worker.meters.alerts) == [(AlertKind.NEW_GROUP, "f1")]


def test_two_workers_raise_an_alert_once(site):
    site.groups.put(group_of("f1"))
    raised = [alert for worker in (site.worker(), site.worker()) for alert in worker.look()]
    assert said(raised) == [(AlertKind.NEW_GROUP, "f1")]


def test_two_workers_that_look_at_the_same_moment_raise_an_alert_once(site):
    site.groups.put(group_of("f1"))
    one, other = site.worker(), site.worker()
    late = []
    store = site.alerts.raise_

    def slow(sightings):
        site.alerts.raise_ = store
        late.extend(other.look())
        return store(sightings)

    site.alerts.raise_ = slow
    assert one.look() == []
    assert said(late) == [(AlertKind.NEW_GROUP, "f1")]


def test_what_a_worker_that_died_did_not_raise_the_next_one_does(site):
    site.groups.put(group_of("f1"))
    dying, store = site.worker(), site.alerts.raise_

    def die(_sightings):
        raise LedgerUnavailable("away")

    site.alerts.raise_ = die
    with pytest.raises(LedgerUnavailable):
        dying.look()
    site.alerts.raise_ = store
    assert said(site.worker().look()) == [(AlertKind.NEW_GROUP, "f1")]


def test_a_group_whose_letters_were_late_is_found_behind_those_that_failed_last(site):
    site.groups.put(*groups_of(700))
    worker = site.worker()
    worker.look()
    late = group_of("late", last_failed_at=START - timedelta(days=3))
    site.groups.put(late)
    site.clock.sleep(11 * MINUTE)
    found = [alert for _ in range(4) for alert in worker.look()]
    assert said(found) == [(AlertKind.NEW_GROUP, "late")]


def test_a_look_reads_a_bounded_number_of_groups(site):
    site.groups.put(*groups_of(1000))
    worker = site.worker()
    worker.look()
    for _ in range(6):
        site.groups.read = 0
        worker.look()
        assert site.groups.read <= 600


def test_a_storm_of_new_groups_is_ten_alerts_a_minute_and_none_is_forgotten(site):
    worker = site.worker(at_once=3)
    worker.look()
    site.groups.put(*groups_of(50, entries=2), group_of("f" * 16, entries=90))
    raised = storms_last(worker.look())
    assert len(raised) == 4
    assert "f" * 16 in {one.fingerprint for one in raised[:-1]}
    assert raised[-1].title == "48 groups of failures at once"
    assert raised[-1].count == 96
    assert raised[-1].kind is AlertKind.STORM
    site.groups.put(*(group_of(f"more-{number}") for number in range(5)))
    assert worker.look() == []
    site.clock.sleep(MINUTE)
    (rest,) = worker.look()
    assert rest.title == "5 groups of failures at once"
    site.clock.sleep(10 * MINUTE)
    site.groups.put(group_of("later"))
    assert said(worker.look()) == [(AlertKind.NEW_GROUP, "later")]


def test_an_archived_group_behind_those_that_failed_last_is_found(site):
    site.groups.put(*groups_of(700))
    worker = site.worker()
    worker.look()
    late = group_of("late", last_failed_at=START - timedelta(days=3), open_entries=0)
    site.groups.put(replace(late, by_status={"archived": 3}))
    site.clock.sleep(11 * MINUTE)
    found = [alert for _ in range(5) for alert in worker.look()]
    assert said(found) == [(AlertKind.NEW_GROUP, "late")]


def test_a_storm_that_is_over_and_comes_back_is_told_together(site):
    groups = groups_of(40)
    site.groups.put(*groups)
    worker = site.worker()
    assert len(worker.look()) == 11
    site.groups.put(*(replace(group, open_entries=0) for group in groups))
    over = [*worker.look(), *worker.look()]
    assert [(one.kind, one.resolved) for one in over] == [
        *[(AlertKind.NEW_GROUP, True)] * 10,
        (AlertKind.STORM, True),
    ]
    site.clock.sleep(2 * HOUR)
    site.groups.put(*(grown(group, 1, last_failed_at=site.clock.now()) for group in groups))
    back = storms_last(worker.look())
    assert [one.kind for one in back] == [*[AlertKind.GROUP_REGRESSED] * 10, AlertKind.STORM]
    assert back[-1].title == "30 groups of failures at once"


def test_a_storm_is_over_when_none_of_its_groups_is_open(site):
    groups = groups_of(40)
    site.groups.put(*groups)
    worker = site.worker(at_once=0)
    (storm,) = worker.look()
    site.groups.put(*(replace(group, open_entries=0) for group in groups[1:]))
    assert [alert for _ in range(3) for alert in worker.look()] == []
    site.groups.put(replace(groups[0], open_entries=0))
    (over,) = [alert for _ in range(4) for alert in worker.look()]
    assert (over.key, over.resolved) == (storm.key, True)


def test_a_storm_of_more_groups_than_one_look_settles_is_not_over_too_early(site):
    groups = groups_of(3 * SETTLED)
    site.groups.put(*groups)
    one, other = site.worker(at_once=0), site.worker(at_once=0)
    one.look()
    site.groups.put(*(replace(group, open_entries=0) for group in groups[:-1]))
    assert [alert for _ in range(20) for worker in (one, other) for alert in worker.look()] == []
    site.groups.put(replace(groups[-1], open_entries=0))
    over = [alert for _ in range(8) for worker in (one, other) for alert in worker.look()]
    assert [(alert.kind, alert.resolved) for alert in over] == [(AlertKind.STORM, True)]


def test_groups_of_a_storm_that_another_worker_told_first_are_told_later(site):
    one, other, store = site.worker(), site.worker(), site.alerts.raise_
    held = []
    site.alerts.raise_ = lambda sightings: held.append(sightings) or []
    groups = [group_of(f"{number:016x}", entries=100 - number) for number in range(20)]
    site.groups.put(*groups[:15])
    one.look()
    site.groups.put(*groups)
    other.look()
    site.alerts.raise_ = store
    first, late = (storms_last(store(sightings)) for sightings in held)
    assert [alert.title for alert in first][-1] == "5 groups of failures at once"
    assert late == []
    site.clock.sleep(MINUTE)
    rest = [alert.title for worker in (one, other) for alert in worker.look()]
    assert rest == ["5 groups of failures at once"]


def test_a_look_that_could_not_be_stored_uses_up_no_ones_turn(site):
    worker, store = site.worker(at_once=4), site.alerts.raise_
    site.groups.put(*groups_of(6))

    def away(_sightings):
        raise LedgerUnavailable("away")

    site.alerts.raise_ = away
    for _ in range(3):
        with pytest.raises(LedgerUnavailable):
            worker.look()
    site.alerts.raise_ = store
    assert [one.kind for one in storms_last(worker.look())] == [
        *[AlertKind.NEW_GROUP] * 4,
        AlertKind.STORM,
    ]


def test_poison_in_many_groups_is_a_storm(site):
    worker = site.worker()
    worker.look()
    site.groups.put(*groups_of(60, reason="poison"))
    raised = storms_last(worker.look())
    assert [one.kind for one in raised] == [*[AlertKind.POISON] * 10, AlertKind.STORM]
    assert "50 more groups of failures are new or back, 50 of them poison" in raised[-1].text


def test_letters_with_many_attempts_of_more_groups_than_one_look_reads_come_later(site):
    known = {"entries": 1, "status": GroupStatus.ACKNOWLEDGED}
    for number in range(3 * LOOKED_INTO):
        entry = site.ledger.add_failed_event(letter_of(f"e{number}", fingerprint=f"f{number:02}"))
        group = group_of(entry.fingerprint, last_failed_at=entry.last_failed_at, **known)
        site.groups.put(group)
    worker = site.worker(rules=AlertRules(many_attempts=1))
    looks = [worker.look() for _ in range(4)]
    told = [[one for one in look if one.kind is AlertKind.MANY_ATTEMPTS] for look in looks]
    assert [len(some) for some in told] == [LOOKED_INTO] * 3 + [0]
    assert len({one.fingerprint for some in told for one in some}) == 3 * LOOKED_INTO


def test_a_group_that_was_removed_and_forgotten_is_raised_again_under_another_id(site):
    site.groups.put(group_of("f1"))
    worker = site.worker()
    (first,) = worker.look()
    site.groups.put(group_of("f1", open_entries=0))
    worker.look()
    site.groups.known.clear()
    ForgottenWatches(alerts=site.alerts, groups=site.groups, jobs=site.jobs).remove(START)
    site.clock.sleep(timedelta(days=31))
    site.groups.put(group_of("f1"), group_of("f2"))
    again, other = worker.look()
    assert {(again.kind, again.fingerprint), (other.kind, other.fingerprint)} == {
        (AlertKind.NEW_GROUP, "f1"),
        (AlertKind.NEW_GROUP, "f2"),
    }
    assert len({one.alert.id for one in site.alerts.get_alerts()}) == 4
    assert first in [one.alert for one in site.alerts.get_alerts()]


def test_groups_that_were_there_before_the_first_look_are_told_together(site):
    site.groups.put(*groups_of(900))
    raised = storms_last(site.worker().look())
    assert len(raised) == 11
    assert raised[-1].title == "890 groups of failures at once"


def test_a_group_that_is_settled_is_resolved_once(site):
    site.groups.put(group_of("f1"))
    worker = site.worker()
    (began,) = worker.look()
    site.groups.put(group_of("f1", open_entries=0))
    (over,) = worker.look()
    assert over.resolved
    assert over.key == began.key
    assert over.id != began.id
    assert worker.look() == []


def test_the_end_of_a_cause_may_be_left_unsaid(site):
    site.groups.put(group_of("f1"))
    worker = site.worker(tell_resolved=False)
    worker.look()
    site.groups.put(group_of("f1", open_entries=0))
    assert worker.look() == []
    assert site.alerts.open_watches(limit=9) == []


def test_a_muted_group_is_raised_after_its_mute_if_it_still_grows(site):
    group = group_of("f1", entries=20)
    site.groups.put(replace(group, muted_until=START + HOUR))
    worker = site.worker()
    assert worker.look() == []
    site.clock.sleep(59 * MINUTE)
    site.groups.put(replace(grown(group, 30), muted_until=START + HOUR))
    assert worker.look() == []
    site.clock.sleep(MINUTE)
    assert said(worker.look()) == [(AlertKind.GROUP_GROWING, "f1")]


def test_letters_with_many_attempts_are_counted_from_the_newest_entries(site):
    for number in range(3):
        site.ledger.add_failed_event(letter_of(f"e{number}", attempts=3 + number))
    (entry,) = site.ledger.get_failed_events(limit=1).entries
    site.groups.put(group_of(entry.fingerprint))
    raised = storms_last(site.worker().look())
    assert [(one.kind, one.count) for one in raised] == [
        (AlertKind.NEW_GROUP, 3),
        (AlertKind.MANY_ATTEMPTS, 2),
    ]


def test_old_entries_are_told_within_a_minute_without_those_of_muted_groups(site):
    for number in range(3):
        site.ledger.add_failed_event(letter_of(f"e{number}", handler=f"orders.h{number % 2}"))
    muted, told = (
        next(e for e in site.ledger.oldest_open(limit=9) if e.handler_name == f"orders.h{number}")
        for number in (0, 1)
    )
    site.groups.put(group_of(muted.fingerprint, muted_until=START + timedelta(days=30)))
    worker = site.worker()
    assert worker.look() == []
    site.clock.sleep(timedelta(days=1))
    (raised,) = worker.look()
    assert (raised.kind, raised.count) == (AlertKind.OLDEST_TOO_OLD, 1)
    assert told.id[:12] in raised.todo
    resolve(site.ledger, told.id, "ada")
    assert worker.look() == []
    site.clock.sleep(MINUTE)
    assert [one.resolved for one in worker.look()] == [True]


def test_a_job_that_halts_is_told_each_time_and_resolved_when_it_goes_on(site):
    site.jobs.put(job_of())
    worker = site.worker()
    (halted,) = worker.look()
    assert (halted.kind, halted.severity) == (AlertKind.REPLAY_HALTED, AlertSeverity.ERROR)
    assert worker.look() == []
    site.jobs.put(job_of(status=JobStatus.RUNNING))
    assert [one.resolved for one in worker.look()] == [True]
    site.jobs.put(job_of(sent=9))
    assert [one.kind for one in storms_last(worker.look())] == [AlertKind.REPLAY_HALTED]


def test_no_muted_entries_hide_an_old_one_of_others(site):
    for number in range(OLDEST + 20):
        site.ledger.add_failed_event(letter_of(f"m{number}", fingerprint="muted"))
    site.clock.sleep(MINUTE)
    late = site.clock.now()
    site.ledger.add_failed_event(
        letter_of("e1", fingerprint="loud", first_attempt_at=late, last_attempt_at=late)
    )
    site.ledger.amend(
        "muted", Amendment(muted_until=START + timedelta(days=30)), revision=1, by="ann"
    )
    site.ledger.amend("loud", Amendment(status=GroupStatus.ACKNOWLEDGED), revision=1, by="ann")
    site.clock.sleep(timedelta(days=2))
    *_, old = site.worker(groups=site.ledger).look()
    assert (old.kind, old.count, old.since) == (AlertKind.OLDEST_TOO_OLD, 1, late)


def test_a_job_that_waits_for_approval_is_told_once_and_resolved(site):
    site.jobs.put(job_of(status=JobStatus.PROPOSED))
    worker = site.worker()
    (asked,) = worker.look()
    assert (asked.kind, asked.severity) == (AlertKind.APPROVAL_WANTED, AlertSeverity.ERROR)
    assert worker.look() == []
    site.jobs.put(job_of(status=JobStatus.RUNNING))
    assert [one.resolved for one in worker.look()] == [True]


def test_every_job_that_waits_for_a_person_is_told(site):
    for number in range(2 * JOBS + 1):
        site.jobs.put(
            job_of(f"j{number}", status=(JobStatus.HALTED, JobStatus.PROPOSED)[number % 2])
        )
    assert len(site.worker().look()) == 2 * JOBS + 1


def test_more_jobs_than_one_look_reads_come_later_and_the_log_says_so(site, caplog):
    most = JOBS * JOB_PAGES
    for number in range(most + 5):
        site.jobs.put(job_of(f"j{number}"))
    worker = site.worker()
    assert len(worker.look()) == most
    assert "more than 1,000 replay jobs are halted or wait for approval" in caplog.text
    assert len(worker.look()) == 5
    assert worker.look() == []


def test_the_depth_of_all_groups_is_shown_after_each_sweep(site):
    site.groups.put(*groups_of(900), group_of("b", domain="billing", failure_class="poison"))
    worker = site.worker()
    worker.look()
    assert worker.meters.depth.open_entries == {("order", ""): 2700, ("billing", "poison"): 3}
    assert worker.meters.depth.oldest_at is None
    site.ledger.add_failed_event(letter_of())
    site.clock.sleep(MINUTE)
    worker.look()
    assert worker.meters.depth.oldest_at == START - 5 * MINUTE


def test_the_first_open_entry_and_the_last_one_gone_are_shown_by_the_next_look(site):
    worker = site.worker()
    worker.look()
    assert not any(worker.meters.depth.open_entries.values())
    site.ledger.add_failed_event(letter_of())
    site.groups.put(group_of("f1"))
    site.clock.sleep(timedelta(seconds=5))
    worker.look()
    assert worker.meters.depth.open_entries == {("order", ""): 3}
    assert worker.meters.depth.oldest_at == START - 5 * MINUTE
    (entry,) = site.ledger.get_failed_events(limit=1).entries
    done = Act(entry_id=entry.id, revision=entry.revision, verb=Verb.RESOLVE)
    assert site.ledger.act([done], by="ann") == [True]
    site.groups.put(group_of("f1", open_entries=0))
    site.clock.sleep(timedelta(seconds=5))
    worker.look()
    assert worker.meters.depth.oldest_at is None


def test_old_alerts_are_forgotten(site):
    site.groups.put(group_of("f1"))
    worker = site.worker(keep=timedelta(days=1))
    worker.look()
    site.clock.sleep(timedelta(days=2))
    worker.look()
    assert site.alerts.get_alerts() == []


def test_a_ledger_away_is_said_once_a_minute_and_waited_for(site, caplog):
    worker = site.worker()

    def away(*_wanted, **_page):
        raise LedgerUnavailable("no ledger at db:5432")

    site.groups.get_groups = away
    with caplog.at_level(logging.ERROR):
        waits = [worker.turn() for _ in range(8)]
    assert waits[:3] == [timedelta(seconds=10), timedelta(seconds=20), timedelta(seconds=40)]
    assert max(waits) == MINUTE
    assert len(caplog.records) == 1
    assert "no ledger at db:5432" in caplog.text


def test_looks_are_seconds_apart_and_spread(site):
    assert site.worker(chance=lambda: 0.0).turn() == timedelta(seconds=3.75)
    assert site.worker(chance=lambda: 1.0).turn() == timedelta(seconds=6.25)


def test_leaving_closes_what_was_opened(site):
    site.worker().leave()
    assert site.closed == [True]
