"""What an entry of an ordered handler is while its lane waits, or goes on without it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.ledger import letter_of
from tests.hand_clock import START

from angzarr.analysis.ledger import transition
from angzarr.analysis.ledger.entry import Hold, Status
from angzarr.analysis.ledger.operator_actions import (
    UNSENT,
    Verb,
    acted,
    asks_for_skip,
    is_parked,
    parked,
    passed,
    refusal,
    told_of_lane,
)
from angzarr.analysis.ledger.transition import (
    WAKES,
    Action,
    EntryDecision,
    answered,
    failed_again,
    published,
)
from angzarr.dead_letters.letter import ORDERED_HANDLER, PROJECTOR

LATER = START + timedelta(hours=1)
CLOSED = {
    Verb.SKIP: Status.SKIPPED,
    Verb.RESOLVE: Status.RESOLVED,
    Verb.COMPENSATE: Status.COMPENSATED,
}


def ordered_letter(**fields):
    return letter_of(component_type=ORDERED_HANDLER, **fields)


ENTRY = transition.filed(ordered_letter(), START).entry


def closed_by(verb, entry=ENTRY):
    return acted(entry, verb, START, "ann", "why", skips=True).entry


def sent(entry):
    return published(entry, entry.replays, START, LATER).entry


@pytest.mark.parametrize("kind", [ORDERED_HANDLER, PROJECTOR])
def test_letters_of_ordered_handlers_and_projections_hold_up_what_follows(kind):
    assert transition.filed(letter_of(component_type=kind), START).entry.is_ordered
    assert not transition.filed(letter_of(), START).entry.is_ordered


@pytest.mark.parametrize("verb", CLOSED)
def test_closing_an_entry_begins_a_skip_that_is_sent_and_answered(verb):
    assert asks_for_skip(ENTRY, verb)
    entry = closed_by(verb)
    assert passed(entry)
    assert (entry.replays, entry.published_at, entry.wake_at) == (1, None, START + UNSENT)
    entry = sent(entry)
    assert (entry.status, entry.published_at, entry.wake_at) == (CLOSED[verb], START, LATER)
    done = answered(entry, 1, LATER, "replay 1 (skipped)", Status.SKIPPED)
    assert (done.entry.status, done.entry.wake_at) == (CLOSED[verb], None)
    assert (done.entry.resolved_by, done.line.what) == ("ann", "went on")
    assert answered(done.entry, 1, LATER, "again", Status.SKIPPED) is None
    assert published(done.entry, 1, LATER, LATER) is None


def test_an_answer_that_overtakes_the_note_that_it_was_sent_counts():
    entry = answered(closed_by(Verb.SKIP), 1, LATER, "replay 1 (skipped)", Status.SKIPPED).entry
    assert entry.wake_at is None
    assert published(entry, 1, LATER, LATER) is None


def test_a_compensation_that_is_still_to_be_sent_is_not_answered_by_a_skip():
    entry = closed_by(Verb.COMPENSATE, sent(closed_by(Verb.SKIP)))
    assert entry.replays == 1, "the skip is under way"
    assert answered(entry, 1, LATER, "replay 1 (skipped)", Status.SKIPPED) is None
    assert parked(entry, 1, LATER, "replay 1 (parked)") is None
    assert entry.wake_at == START + UNSENT


def test_what_is_archived_or_escalated_holds_its_lane_up():
    for verb in (Verb.ARCHIVE, Verb.ESCALATE):
        entry = acted(ENTRY, verb, START, "ann", skips=True).entry
        assert (entry.replays, entry.wake_at) == (0, None)
    assert "wait on behind it" in told_of_lane(ENTRY, Verb.ARCHIVE)
    assert "go on without it" in told_of_lane(ENTRY, Verb.SKIP)
    assert told_of_lane(transition.filed(letter_of(), START).entry, Verb.SKIP) == ""


@pytest.mark.parametrize("verb", [Verb.RESTORE, Verb.ARCHIVE])
def test_what_its_lane_passed_is_not_brought_back_nor_replayed(verb):
    entry = sent(closed_by(Verb.SKIP))
    assert "cannot be handled any more" in refusal(entry, verb)
    assert not transition.replayable(entry)


def test_one_skip_is_enough_whatever_is_said_next():
    entry = sent(closed_by(Verb.SKIP))
    again = closed_by(Verb.RESOLVE, entry)
    assert (again.replays, again.wake_at, again.published_at) == (1, LATER, START)
    assert again.status is Status.RESOLVED


def test_the_letter_of_a_skip_brings_its_entry_back_for_a_person():
    entry = sent(closed_by(Verb.SKIP))
    letter = ordered_letter(replay=1, explanation="it waited too long")
    after = failed_again(entry, letter, LATER).entry
    assert (after.status, after.hold, after.resolved_by) == (Status.HELD, Hold.ANSWER, "")
    assert "it waited too long" in after.evidence
    assert answered(after, 1, LATER, "replay 1 (skipped)", Status.SKIPPED) is None
    assert closed_by(Verb.SKIP, after).replays == 2


def test_a_late_letter_of_the_failure_before_leaves_it_closed():
    entry = sent(closed_by(Verb.SKIP))
    after = failed_again(entry, ordered_letter(replay=0), LATER).entry
    assert (after.status, after.wake_at) == (Status.SKIPPED, LATER)


def retrying():
    return published(
        transition.retrying(ENTRY, 1, START, "ann", UNSENT).entry, 1, START, LATER
    ).entry


def test_a_replay_that_is_parked_is_awaited_by_nobody_and_answered_in_its_turn():
    change = parked(retrying(), 1, LATER, "replay 1 (parked)")
    entry = change.entry
    assert (entry.status, entry.hold, entry.wake_at) == (Status.RETRYING, Hold.LANE, None)
    assert change.line.what == "parked"
    assert parked(entry, 1, LATER, "replay 1 (parked)") is None
    assert published(entry, 1, LATER, LATER) is None, "the note that it was sent comes late"
    done = answered(entry, 1, LATER, "replay 1 (handled)").entry
    assert (done.status, done.hold) == (Status.RESOLVED, None)


def test_a_parked_replay_that_fails_in_its_turn_fails():
    entry = parked(retrying(), 1, LATER, "replay 1 (parked)").entry
    after = failed_again(entry, ordered_letter(replay=1), LATER).entry
    assert (after.status, after.hold) == (Status.FAILED, None)


def test_a_replay_held_without_an_answer_is_under_way_again_when_it_turns_out_to_be_parked():
    silent = EntryDecision(
        action=Action.HOLD,
        failure_class=ENTRY.failure_class,
        evidence="no answer",
        hold=Hold.ANSWER,
    )
    held = transition.decided(retrying(), silent, LATER, "analysis").entry
    assert parked(held, 1, LATER, "replay 1 (parked)").entry.status is Status.RETRYING
    by_rule = replace(held, hold=Hold.RULE)
    assert parked(by_rule, 1, LATER, "replay 1 (parked)") is None


@pytest.mark.parametrize("verb", Verb)
def test_a_person_need_not_wait_for_what_is_parked(verb):
    entry = parked(retrying(), 1, LATER, "replay 1 (parked)").entry
    assert refusal(retrying(), verb)
    change = acted(entry, verb, LATER, "ann", skips=True)
    assert (change.entry.hold is Hold.LANE) is False
    assert change.entry.replays == (2 if verb in CLOSED else 1)


def test_a_rule_that_skips_an_entry_has_its_skip_sent_at_once():
    skip = EntryDecision(action=Action.SKIP, failure_class=None, evidence="revoked", lets_go=True)
    entry = transition.decided(ENTRY, skip, START, "analysis").entry
    assert (entry.status, entry.replays, entry.wake_at) == (Status.SKIPPED, 1, START)
    alone = transition.decided(ENTRY, replace(skip, lets_go=False), START, "analysis").entry
    assert (alone.replays, alone.wake_at) == (0, None)


STEPS = st.one_of(
    st.tuples(st.just("act"), st.sampled_from(Verb)),
    st.tuples(st.just("sent"), st.none()),
    st.tuples(st.just("answer"), st.sampled_from([Status.RESOLVED, Status.SKIPPED])),
    st.tuples(st.just("parked"), st.none()),
    st.tuples(st.just("old answer"), st.none()),
    st.tuples(st.just("old letter"), st.none()),
)


def step(entry, what, with_):
    """Return the entry after something happened to it, as a ledger would keep it."""
    number = entry.replays
    match what:
        case "act":
            change = acted(entry, with_, START, "ann", skips=True)
        case "sent":
            change = published(entry, number, START, LATER)
        case "answer":
            change = answered(entry, number, START, "replay", with_)
        case "parked":
            change = parked(entry, number, START, "replay")
        case "old answer":
            change = answered(entry, number - 1, START, "replay", Status.RESOLVED)
        case _:
            older = ordered_letter(replay=number - 1) if number else None
            change = older and failed_again(entry, older, START)
    return change.entry if change else entry


@given(st.sampled_from(sorted(CLOSED)), st.lists(STEPS, max_size=12))
def test_what_somebody_said_stays_whatever_answers_come_and_no_skip_is_forgotten(verb, steps):
    entry = replace(ENTRY, status=Status.HELD)
    entry = closed_by(verb, entry)
    said = entry.status
    for what, with_ in steps:
        after = step(entry, what, with_)
        if what == "act" and after is not entry:
            said = after.status
        assert after.status is said
        assert passed(after)
        assert after.replays == 1
        unsent = after.published_at is None
        assert not unsent or after.wake_at is not None, "it is to be sent, so somebody wakes"
        assert not is_parked(after) or after.wake_at is None
        assert after.status in WAKES
        entry = after
