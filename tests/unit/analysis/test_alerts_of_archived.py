"""Letters that a shipped rule archives as it files them: nobody sees them, but for an alert."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.contracts.ledger import letter_of
from tests.unit.analysis.alerted import FakeJobs
from tests.unit.analysis.alerts.test_alert_raiser import Site
from tests.unit.analysis.worker.test_worker import World

from angzarr.analysis.alerts.alert import AlertKind
from angzarr.analysis.alerts.alert_state import AlertRules
from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.ledger.operator_actions import Verb
from angzarr.analysis.replay.bulk_actions import act_on_all
from angzarr.analysis.replay.skip import Skips
from angzarr.dead_letters.letter import Reason


@pytest.fixture
def world():
    return World()


@pytest.fixture
def alerting(world):
    site = Site()
    site.clock, site.groups, site.ledger, site.jobs = (
        world.clock, world.ledger, world.ledger, FakeJobs(),
    )  # fmt: skip
    return site.worker(rules=AlertRules())


def kinds(alerts):
    return sorted((alert.kind, alert.resolved) for alert in alerts)


def file(world, letter, **how):
    world.queue.send(letter, **how)
    world.worker.step()
    (entry,) = world.ledger.get_failed_events(status=Status.ARCHIVED).entries
    return entry


def test_a_letter_that_kills_its_worker_is_archived_and_raises_an_alert_once(world, alerting):
    file(world, letter_of(reason=Reason.POISON, attempts=1, last_attempt_at=world.clock.now()))
    assert kinds(alerting.look()) == [(AlertKind.DEAD_LETTER, False), (AlertKind.POISON, False)]
    for _ in range(3):
        world.clock.sleep(timedelta(seconds=5))
        assert alerting.look() == []


def test_a_letter_that_cannot_be_read_raises_an_alert(world, alerting):
    file(world, None, raw=b"garbage", problem="no letter")
    assert kinds(alerting.look()) == [(AlertKind.DEAD_LETTER, False), (AlertKind.NEW_GROUP, False)]


def test_more_of_an_archived_group_is_told_again(world, alerting):
    file(world, letter_of("e1", reason=Reason.POISON, last_attempt_at=world.clock.now()))
    alerting.look()
    world.clock.sleep(timedelta(hours=2))
    world.queue.send(letter_of("e2", reason=Reason.POISON, last_attempt_at=world.clock.now()))
    world.worker.step()
    assert (AlertKind.POISON, False) in kinds(alerting.look())


def test_what_a_person_archived_is_resolved_and_raises_nothing(world, alerting):
    world.queue.send(letter_of(error_type="builtins.KeyError", last_attempt_at=world.clock.now()))
    world.worker.step()
    alerting.look()
    (entry,) = world.ledger.get_failed_events(status=None).entries
    act_on_all(Skips(replayer=world.replayer), Verb.ARCHIVE, [entry], by="ada")
    assert {alert.resolved for alert in alerting.look()} <= {True}
    assert alerting.look() == []


def test_what_is_filed_and_archived_days_after_it_failed_is_told(world, alerting):
    failed_at = world.clock.now()
    world.clock.sleep(timedelta(days=3))
    file(world, letter_of(reason=Reason.POISON, attempts=1, last_attempt_at=failed_at))
    assert (AlertKind.POISON, False) in kinds(alerting.look())
