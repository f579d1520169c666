"""Skips: closing entries of ordered handlers, and who lets their lanes go on when somebody dies."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.contracts.ledger import letter_of, message_of, ordered_letter_of
from tests.hand_clock import START
from tests.unit.analysis.worker.test_worker import LEASE, Killed, World

from angzarr.aggregates.book import Address
from angzarr.analysis.ledger.entry import HistoryLine, Hold, Status
from angzarr.analysis.ledger.operator_actions import SKIP_AGAIN, UNSENT, Verb
from angzarr.analysis.ledger.replay_options import ReplayOrder
from angzarr.analysis.replay.bulk_actions import act_on_all, would_act
from angzarr.analysis.replay.compensation import Compensator
from angzarr.analysis.replay.replay import replay_message, skip_message
from angzarr.analysis.replay.skip import LanePlace, Skips, kept_reason, place_of, told_behind
from angzarr.dead_letters.letter import Reason
from angzarr.errors import BrokerUnavailable, PayloadStoreUnavailable
from angzarr.events import headers as names

CLOSING = [Verb.SKIP, Verb.RESOLVE]
STATUS = {Verb.SKIP: Status.SKIPPED, Verb.RESOLVE: Status.RESOLVED}


@pytest.fixture
def world():
    return World()


@pytest.fixture
def skips(world):
    return Skips(replayer=world.replayer)


def filed(world, *args, **fields):
    return world.ledger.add_failed_event(ordered_letter_of(*args, **fields))


def entry_of(world, entry):
    return world.ledger.open(entry.id).entry


def whats(world, entry):
    return [line.what for line in world.ledger.open(entry.id).history]


# -- what is sent ------------------------------------------------------------------------


def test_a_skip_is_the_replay_of_its_letter_but_for_its_reason():
    letter = ordered_letter_of()
    skip, replay = skip_message(letter, 2, "skip by ann: a test\norder"), replay_message(letter, 2)
    assert skip.headers == {**replay.headers, names.SKIP: "skip by ann: a test\ufffdorder"}
    assert replace(skip, headers=replay.headers) == replay
    assert names.skip_of(skip.headers) == skip.headers[names.SKIP]


def test_what_failed_as_a_skip_is_replayed_as_an_event():
    letter = ordered_letter_of()
    failed = replace(letter, message=skip_message(letter, 1, "because"), replay=1)
    assert names.SKIP not in replay_message(failed, 2).headers


def test_the_skip_of_what_nobody_could_read_brings_a_body_that_can_be_read():
    """Else it would end as the first message did, and never come as far as the lane."""
    letter = replace(ordered_letter_of(), event=None)
    ill = replace(
        letter.message,
        body=b"{ no JSON",
        content_type="application/x-none",
        content_encoding="binary",
        headers={**letter.message.headers, "compression": "application/x-gzip"},
    )
    skip = skip_message(replace(letter, message=ill), 1, "because")
    assert json.loads(skip.body) == [[None], {}, {}]
    assert (skip.content_type, skip.content_encoding) == ("application/json", "utf-8")
    assert "compression" not in skip.headers
    assert skip.headers[names.SKIP] == "because"


def test_the_place_of_an_event_is_read_from_its_letter():
    letter = ordered_letter_of()
    place = LanePlace("orders.sync", Address("order", "o-1"), 3)
    assert place_of(letter) == place
    headers = {**letter.message.headers, names.DOMAIN: "order", names.ROOT: "o-1"}
    unread = replace(letter, event=None, message=replace(letter.message, headers=headers))
    assert place_of(unread) == place


@pytest.mark.parametrize(
    "fields",
    [
        {"sequence": None},
        {"root": None},
        {"reason": Reason.CONFLICT},  # another body than that which the lane waits for
        {"envelope": b"theirs"},
        {"message": replace(message_of(), headers={})},
    ],
)
def test_what_has_no_place_in_a_lane_of_ours_holds_nothing_up(fields):
    assert place_of(ordered_letter_of(**fields)) is None


def test_how_many_wait_is_said_in_words():
    letter = ordered_letter_of()
    assert told_behind(letter, 17) == "17 later events of order/o-1 wait behind it"
    assert told_behind(letter, 1) == "1 later event of order/o-1 waits behind it"
    assert told_behind(letter, 0) == told_behind(letter_of(), 3) == ""


def test_the_reason_that_is_kept_is_the_last_one():
    said = [("failed", "w1", "boom"), ("skip", "ann", "a test"), ("resolve", "bob", "")]
    history = [HistoryLine(at=START, who=who, what=what, detail=why) for what, who, why in said]
    assert kept_reason(history) == "resolve by bob"
    assert kept_reason(history[:2]) == "skip by ann: a test"
    assert kept_reason(history[:1]) == "skip"


def test_no_lane_is_left_behind_by_a_replay_to_another_handler(world):
    world.tasks.add("orders.other")
    entry, letter = filed(world), ordered_letter_of()
    order, same = ReplayOrder(to_handler="orders.other"), ReplayOrder(to_handler="orders.sync")
    problem = world.replayer.problem
    assert "later events wait behind it" in problem(entry, letter, order)
    assert problem(entry, letter_of(), order) == problem(entry, letter, same) == ""
    world.tasks.remove("orders.sync")  # it was renamed
    assert problem(entry, letter, order) == ""


# -- closing entries ---------------------------------------------------------------------


@pytest.mark.parametrize("verb", CLOSING)
@pytest.mark.parametrize("outcome", ["skipped", "duplicate"])
def test_closing_an_entry_lets_its_lane_go_on_and_leaves_it_what_was_said(
    world, skips, verb, outcome
):
    entry = filed(world)
    (done,) = act_on_all(skips, verb, [entry], note="a test", by="ann")
    assert done == (entry, "", False)
    (sent,) = world.publisher.sent
    assert names.skip_of(sent.headers) == f"{verb} by ann: a test"
    assert sent.headers[names.REPLAY] == 1
    assert sent.headers[names.LETTER_ID] == entry.letter_id
    assert sent.headers["id"] == "task-e1"
    world.answer(sent, outcome)
    world.answer(sent, outcome)  # twice
    world.worker.step()
    after = entry_of(world, entry)
    assert (after.status, after.resolved_by, after.wake_at) == (STATUS[verb], "ann", None)
    assert whats(world, entry) == ["failed", verb, "published", "went on"]


@pytest.mark.parametrize("verb", CLOSING)
def test_an_entry_that_holds_nothing_up_is_closed_without_a_message(world, skips, verb):
    entry = world.ledger.add_failed_event(letter_of())
    assert act_on_all(skips, verb, [entry], by="ann") == [(entry, "", False)]
    assert world.publisher.sent == []
    assert entry_of(world, entry).wake_at is None


def test_an_ordered_entry_without_a_place_is_closed_without_a_message(world, skips):
    entry = filed(world, sequence=None)
    assert act_on_all(skips, Verb.SKIP, [entry], by="ann") == [(entry, "", False)]
    assert world.publisher.sent == []
    after = entry_of(world, entry)
    assert (after.status, after.replays, after.wake_at) == (Status.SKIPPED, 0, None)


def test_what_cannot_be_sent_is_not_closed_as_if_it_were(world, skips):
    world.tasks.clear()
    entry = filed(world)
    would = would_act(skips, Verb.SKIP, [entry])
    for done in (would, act_on_all(skips, Verb.SKIP, [entry], by="a")):
        ((_, problem, begun),) = done
        assert "no handler is registered" in problem
        assert "archive it" in problem
        assert not begun
    assert entry_of(world, entry) == entry
    assert act_on_all(skips, Verb.ARCHIVE, [entry], by="a") == [(entry, "", False)]


def test_a_payload_that_cannot_be_had_now_closes_nothing(world, skips, monkeypatch):
    entry = filed(world)

    def away(*_args, **_options):
        raise PayloadStoreUnavailable("the store is away")

    monkeypatch.setattr(type(world.replayer), "sendable", away)
    ((_, problem, _),) = act_on_all(skips, Verb.SKIP, [entry], by="ann")
    assert "not begun" in problem
    assert entry_of(world, entry) == entry


def test_many_are_sent_in_the_order_of_their_lanes(world, skips):
    places = [("o-2", 5), ("o-1", 9), ("o-2", 4), ("o-1", 10), ("o-1", 2)]
    entries = [
        filed(world, f"e{number}", sequence, root) for number, (root, sequence) in enumerate(places)
    ]
    act_on_all(skips, Verb.SKIP, entries, by="ann")
    sent = [one.headers[names.SEQUENCE] for one in world.publisher.sent]
    assert sent == [2, 9, 10, 4, 5]


def test_who_changed_meanwhile_is_left_alone(world, skips):
    entry = filed(world)
    act_on_all(skips, Verb.ESCALATE, [entry], by="bob")
    ((_, problem, _),) = act_on_all(skips, Verb.SKIP, [entry], by="ann")
    assert "changed meanwhile" in problem
    assert world.publisher.sent == []


# -- crashes and outages -----------------------------------------------------------------


def test_while_the_broker_is_away_all_are_closed_and_sent_by_the_worker(world, skips):
    entries = [filed(world, f"e{number}", number) for number in range(3)]
    world.publisher.fail["publish"] = BrokerUnavailable("away")
    done = act_on_all(skips, Verb.SKIP, entries, note="why", by="ann")
    assert [(problem, begun) for _, problem, begun in done] == [("", True)] * 3
    world.publisher.fail.clear()
    world.worker.step()
    assert world.publisher.sent == [], "whoever closed them may be sending them"
    world.clock.sleep(UNSENT)
    world.worker.step()
    reasons = {names.skip_of(one.headers) for one in world.publisher.sent}
    assert (len(world.publisher.sent), reasons) == (3, {"skip by ann: why"})


@pytest.mark.parametrize("where", ["publish", "after publish"])
def test_who_dies_at_it_leaves_a_skip_that_is_sent_again_as_it_was(world, skips, where):
    entry = filed(world)
    world.publisher.fail[where] = Killed()
    with pytest.raises(Killed):
        act_on_all(skips, Verb.RESOLVE, [entry], note="by hand", by="ann")
    world.publisher.fail.clear()
    world.clock.sleep(UNSENT)
    world.restart()
    world.worker.step()
    assert len({repr(one) for one in world.publisher.sent}) == 1
    assert len(world.publisher.sent) == (1 if where == "publish" else 2)
    assert whats(world, entry) == ["failed", "resolve", "published"]


def test_one_message_that_cannot_be_published_keeps_no_other_back(world, skips):
    entries = [filed(world, f"e{number}", number) for number in range(2)]
    world.publisher.fail["publish"] = TypeError("a broken message")
    done = act_on_all(skips, Verb.SKIP, entries, by="ann")
    assert [begun for _, _, begun in done] == [True, True]
    world.publisher.fail.clear()
    world.clock.sleep(UNSENT)
    world.worker.step()
    assert len(world.publisher.sent) == 2


def test_while_the_brake_is_pulled_a_skip_waits(world):
    entry = filed(world)
    braked = Skips(replayer=world.replayer, barred=lambda: "the brake was pulled")
    assert act_on_all(braked, Verb.SKIP, [entry], by="ann") == [(entry, "", True)]
    assert world.publisher.sent == []
    world.asleep = {Status.SKIPPED}
    world.clock.sleep(UNSENT)
    world.worker.step()
    assert world.publisher.sent == []
    world.asleep = ()
    world.worker.step()
    assert len(world.publisher.sent) == 1


def test_a_skip_that_nobody_answers_is_sent_again_and_the_entry_stays_closed(world, skips):
    entry = filed(world)
    act_on_all(skips, Verb.SKIP, [entry], by="ann")
    world.clock.sleep(SKIP_AGAIN)
    world.worker.step()
    first, second = world.publisher.sent
    assert first == second
    assert entry_of(world, entry).status is Status.SKIPPED


def test_a_skip_that_cannot_be_sent_any_more_is_told_to_a_person(world, skips):
    entry = filed(world)
    world.publisher.fail["publish"] = BrokerUnavailable("away")
    act_on_all(skips, Verb.SKIP, [entry], by="ann")
    world.publisher.fail.clear()
    world.tasks.clear()
    world.clock.sleep(UNSENT)
    world.worker.step()
    after = entry_of(world, entry)
    assert (after.status, after.hold) == (Status.HELD, Hold.ANSWER)
    assert "no handler is registered" in after.evidence


def test_a_skip_that_becomes_a_letter_brings_its_entry_back_and_can_be_sent_anew(world, skips):
    entry = filed(world)
    act_on_all(skips, Verb.SKIP, [entry], by="ann")
    (sent,) = world.publisher.sent
    world.queue.send(ordered_letter_of(replay=1, message=sent, explanation="waited too long"))
    world.worker.step()
    after = world.entry
    assert (after.status, after.letter_replay) == (Status.HELD, 1)
    act_on_all(skips, Verb.SKIP, [after], by="ann")
    assert world.publisher.sent[-1].headers[names.REPLAY] == 2
    world.answer(world.publisher.sent[-1], "skipped")
    world.worker.step()
    assert whats(world, entry)[-2:] == ["published", "went on"]


# -- parked ------------------------------------------------------------------------------


def test_a_replay_that_is_parked_is_neither_failed_nor_missed(world):
    entry = filed(world)
    world.replayer.replay(entry, ordered_letter_of(), by="ann")
    (sent,) = world.publisher.sent
    world.answer(sent, "parked")
    world.worker.step()
    world.clock.sleep(SKIP_AGAIN)
    world.worker.step()
    after = entry_of(world, entry)
    assert (after.status, after.hold) == (Status.RETRYING, Hold.LANE)
    world.answer(sent, "handled")
    world.worker.step()
    assert entry_of(world, entry).status is Status.RESOLVED
    assert whats(world, entry) == ["failed", "retrying", "published", "parked", "resolved"]


def test_a_word_of_a_newer_worker_is_let_go_and_changes_nothing(world):
    entry = filed(world)
    world.replayer.replay(entry, ordered_letter_of(), by="ann")
    before = entry_of(world, entry)
    world.answer(world.publisher.sent[0], "transmuted")
    world.worker.step()
    assert entry_of(world, entry) == before
    assert len(world.outcomes.let_go) == 1


def test_a_skip_that_is_parked_is_not_sent_again(world, skips):
    entry = filed(world)
    act_on_all(skips, Verb.SKIP, [entry], by="ann")
    (sent,) = world.publisher.sent
    world.answer(sent, "parked")
    world.worker.step()
    world.clock.sleep(SKIP_AGAIN)
    world.worker.step()
    assert len(world.publisher.sent) == 1
    world.answer(sent, "skipped")
    world.worker.step()
    after = entry_of(world, entry)
    assert (after.status, after.hold, after.resolved_by) == (Status.SKIPPED, None, "ann")


def test_what_is_parked_can_be_skipped_instead_under_a_higher_number(world, skips):
    entry = filed(world)
    world.replayer.replay(entry, ordered_letter_of(), by="ann")
    world.answer(world.publisher.sent[0], "parked")
    world.worker.step()
    assert act_on_all(skips, Verb.SKIP, [entry_of(world, entry)], by="ann")[0].problem == ""
    assert world.publisher.sent[-1].headers[names.REPLAY] == 2


# -- compensations and rules -------------------------------------------------------------


def compensator_of(world):
    return Compensator(
        ledger=world.ledger, replayer=world.replayer, compensations=world.compensations
    )


def test_a_compensation_is_followed_by_a_skip(world):
    entry = filed(world)
    assert (
        compensator_of(world).compensate(entry, ordered_letter_of(), by="ann", note="refund") == ""
    )
    (skip,) = world.publisher.sent
    assert len(world.compensations.sent) == 1
    assert names.skip_of(skip.headers) == "compensate by ann: refund"
    world.answer(skip, "skipped")
    world.worker.step()
    after = entry_of(world, entry)
    assert (after.status, after.resolved_by, after.wake_at) == (Status.COMPENSATED, "ann", None)


def test_a_compensation_whose_skip_was_not_sent_is_sent_again_with_it(world):
    entry = filed(world)
    world.publisher.fail["publish"] = BrokerUnavailable("away")
    with pytest.raises(BrokerUnavailable):
        compensator_of(world).compensate(entry, ordered_letter_of(), by="ann", note="refund")
    world.publisher.fail.clear()
    world.clock.sleep(UNSENT)
    world.worker.step()
    first, second = world.compensations.sent
    assert first == second
    (skip,) = world.publisher.sent
    assert names.skip_of(skip.headers) == "compensate by ann: refund"
    world.clock.sleep(LEASE)
    world.worker.step()
    assert len(world.compensations.sent) == 2


def test_a_skipped_entry_that_is_compensated_keeps_its_skip(world, skips):
    entry = filed(world)
    act_on_all(skips, Verb.SKIP, [entry], by="ann")
    skipped = world.ledger.open(entry.id)
    assert compensator_of(world).compensate(skipped.entry, skipped.failure, by="bob") == ""
    assert [one.headers[names.REPLAY] for one in world.publisher.sent] == [1, 1]
    world.answer(world.publisher.sent[0], "skipped")
    world.worker.step()
    assert entry_of(world, entry).status is Status.COMPENSATED


@pytest.mark.parametrize("sequence", [3, None])
def test_what_a_rule_skips_goes_on_too(world, sequence):
    world.queue.send(ordered_letter_of(sequence=sequence, reason=Reason.REVOKED))
    world.worker.step()
    world.worker.step()
    assert world.entry.status is Status.SKIPPED
    if sequence is None:
        assert world.publisher.sent == []
        return
    (sent,) = world.publisher.sent
    assert (names.skip_of(sent.headers) or "").startswith("skipped by analysis@here: revoked")
    assert sent.headers["id"] != "task-e1", "workers remember that the old one was revoked"
