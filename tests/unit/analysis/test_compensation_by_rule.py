"""A rule that has refused events compensated: once, on the road of people, and when it may."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.contracts.ledger import letter_of
from tests.unit.analysis.replay.test_compensation import BODY, message_of
from tests.unit.analysis.worker.test_worker import LEASE, Killed, World

from angzarr.analysis.ledger.entry import FailureClass, Hold, Status
from angzarr.analysis.ledger.operator_actions import UNSENT, Act, Verb
from angzarr.analysis.ledger.transition import UNDECIDED
from angzarr.analysis.replay.compensation import call_of
from angzarr.dead_letters.letter import Distrusted
from angzarr.resilience.idempotency import RECORD_LIFE

RULE = {
    "name": "refund-what-was-refused",
    "when": {"error_type": "*.OutOfStock", "handler": "*"},
    "then": {"class": "business_rejection", "action": "compensate", "say": "no stock: {message}"},
}


def refused(event_id="e1", **fields):
    given = {"error_type": "shop.OutOfStock", "error_message": "none left", **fields}
    return letter_of(event_id, message=replace(message_of(event_id), body=BODY), **given)


@pytest.fixture
def world():
    world = World()
    world.rules = (RULE,)
    world.restart()
    return world


def later(world, pause=LEASE):
    world.clock.sleep(pause)
    world.worker.step()


def lines_of(world):
    return world.ledger.open(world.entry.id).history


def test_a_refused_event_is_compensated_and_its_history_says_by_which_rule(world):
    world.queue.send(refused())
    world.worker.step()
    later(world)
    entry = world.entry
    assert (entry.status, entry.failure_class) == (
        Status.COMPENSATED,
        FailureClass.BUSINESS_REJECTION,
    )
    assert (entry.resolved_by, entry.wake_at) == ("analysis@here", None)
    failed, waiting, compensated, published = lines_of(world)
    assert [failed.what, waiting.what, published.what] == ["failed", "waiting", "published"]
    assert (compensated.what, compensated.who) == ("compensate", "analysis@here")
    assert "no stock: none left" in compensated.detail
    assert "undone by orders.unsync, as rule refund-what-was-refused says" in compensated.detail
    assert world.compensations.sent == [call_of(refused(), "orders.unsync")]
    later(world, timedelta(days=1))
    assert len(world.compensations.sent) == 1


def test_what_a_person_resolved_is_not_compensated_because_of_a_late_letter(world):
    world.rules = ()
    world.restart()
    world.queue.send(refused(category="transient"))
    world.worker.step()
    for _ in range(3):
        later(world)
    later(world, timedelta(hours=2))
    assert world.entry.hold is Hold.ANSWER
    act = Act(entry_id=world.entry.id, revision=world.entry.revision, verb=Verb.RESOLVE)
    assert world.ledger.act([act], by="ann") == [True]
    world.rules = (RULE,)
    world.restart()
    world.queue.send(refused(replay=1))
    world.worker.step()
    later(world, timedelta(minutes=5))
    assert (world.entry.status, world.entry.resolved_by) == (Status.RESOLVED, "ann")
    assert not world.compensations.sent


def test_a_handler_that_names_no_compensation_is_held_at_once_and_told_what_to_do(world):
    world.queue.send(refused(handler="mail.send"))
    world.worker.step()
    entry = world.entry
    assert (entry.status, entry.hold) == (Status.HELD, Hold.RULE)
    assert entry.failure_class is FailureClass.BUSINESS_REJECTION
    assert "rule refund-what-was-refused would have it compensated" in entry.evidence
    assert "register it with compensation=" in entry.evidence
    later(world, timedelta(days=1))
    assert not world.compensations.sent


def test_a_letter_that_may_be_forged_is_never_compensated_by_a_rule(world):
    world.obstacle = lambda _failure: Distrusted("its signature is wrong")
    world.restart()
    world.queue.send(refused())
    world.worker.step()
    later(world)
    assert world.entry.status is Status.HELD
    assert not world.compensations.sent


def test_brake_and_quiet_hours_hold_it_until_they_are_over(world):
    world.barred = "quiet hours"
    world.queue.send(refused())
    world.worker.step()
    later(world, timedelta(hours=3))
    assert world.entry.status is Status.WAITING
    assert not world.compensations.sent
    world.barred = ""
    later(world)
    assert world.entry.status is Status.COMPENSATED
    assert len(world.compensations.sent) == 1


def test_what_nobody_could_decide_in_time_waits_for_them_too(world):
    world.broken, world.barred = RuntimeError("a bug"), "quiet hours"
    world.queue.send(refused())
    world.worker.step()
    assert world.entry.status is Status.FAILED
    world.broken = None
    later(world, UNDECIDED)
    assert world.entry.status is Status.WAITING
    assert not world.compensations.sent


def test_a_rule_that_was_taken_away_meanwhile_compensates_nothing(world):
    world.barred = "quiet hours"
    world.queue.send(refused())
    world.worker.step()
    world.rules, world.barred = (), ""
    world.restart()
    later(world)
    assert not world.compensations.sent
    assert world.entry.status is Status.WAITING
    assert "replays used" in world.entry.evidence


def test_a_person_may_come_first(world):
    world.barred = "quiet hours"
    world.queue.send(refused())
    world.worker.step()
    entry, letter = world.entry, refused()
    assert _compensator(world).compensate(entry, letter, by="ann") == ""
    world.barred = ""
    later(world)
    assert world.entry.resolved_by == "ann"
    assert len(world.compensations.sent) == 1


@pytest.mark.parametrize("dies_in", ["before it is noted", "before it is sent", "after it is sent"])
def test_a_worker_that_is_killed_in_between_leaves_one_compensation(world, dies_in):
    """Killed before the ledger knows it, before the broker has it, and after."""
    world.queue.send(refused())
    undo = _die(world, dies_in)
    with pytest.raises(Killed):
        world.worker.step()
    undo()
    world.restart()
    for _ in range(4):
        later(world, UNSENT)
    assert world.entry.status is Status.COMPENSATED
    assert world.entry.wake_at is None
    assert len({one.task_id for one in world.compensations.sent}) == 1, "a claim lets one run"
    assert [line.what for line in lines_of(world)].count("compensate") == 1
    assert len(world.compensations.sent) == (2 if dies_in == "after it is sent" else 1)


@pytest.mark.parametrize("dies_in", ["before it is sent", "after it is sent"])
def test_a_compensation_that_may_have_been_sent_is_left_to_people_once_no_claim_tells(
    world, dies_in
):
    world.queue.send(refused())
    undo = _die(world, dies_in)
    with pytest.raises(Killed):
        world.worker.step()
    undo()
    sent = len(world.compensations.sent)
    world.restart()
    world.asleep = {Status.COMPENSATED}  # somebody pulled the brake for the weekend
    later(world, RECORD_LIFE)
    world.asleep = ()
    later(world, UNSENT)
    assert len(world.compensations.sent) == sent
    assert world.entry.status is Status.HELD
    assert "may have been sent" in world.entry.evidence
    assert _compensator(world).compensate(world.entry, refused(), by="ann") == ""
    assert (world.entry.status, len(world.compensations.sent)) == (Status.COMPENSATED, sent + 1)
    later(world, timedelta(days=3))
    assert len(world.compensations.sent) == sent + 1


def test_what_was_compensated_is_not_compensated_again_by_itself(world):
    """A letter of a replay that this ledger never began brings the entry back."""
    world.queue.send(refused())
    world.worker.step()
    later(world)
    world.queue.send(refused(replay=4))
    world.worker.step()
    later(world)
    assert len(world.compensations.sent) == 1
    assert world.entry.status is Status.HELD
    assert "compensated before" in world.entry.evidence


def test_while_the_broker_is_away_the_rest_goes_on_and_it_is_sent_later(world):
    world.queue.send(refused())
    world.compensations.away = True
    assert world.worker.step().away == ["due entries"]
    assert world.entry.status is Status.COMPENSATED
    world.compensations.away = False
    later(world, UNSENT)
    later(world, UNSENT)
    assert len(world.compensations.sent) == 1


def test_a_rule_may_skip_what_is_refused(world):
    world.rules = ({**RULE, "then": {"class": "business_rejection", "action": "skip"}},)
    world.restart()
    world.queue.send(refused())
    world.worker.step()
    assert (world.entry.status, world.entry.resolved_by) == (Status.SKIPPED, "analysis@here")
    later(world, timedelta(days=1))
    assert not world.compensations.sent
    assert not world.publisher.sent


def _compensator(world):
    (waking,) = (one for one in world.worker.duties if one.name == "due entries")
    return waking.compensator


def _die(world, dies_in):
    """Let the process die at that point; return what mends it."""
    ledger, compensations = world.ledger, world.compensations
    act, send = ledger.act, compensations.send

    def killed(*_arguments, **_options):
        raise Killed

    def sent(call):
        send(call)
        raise Killed

    if dies_in == "before it is noted":
        ledger.act = killed
    else:
        compensations.send = killed if dies_in == "before it is sent" else sent

    def mended():
        ledger.act, compensations.send = act, send

    return mended
