"""Random histories of one entry keep the two rules that hold replays together."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.ledger import HOLD, REPLAY, letter_of
from tests.hand_clock import START

from angzarr.analysis.ledger import transition
from angzarr.analysis.ledger.entry import BY_REPLAY, Status
from angzarr.analysis.ledger.operator_actions import Verb, acted, compensation_sent

LEASE = timedelta(seconds=30)
WAIT = replace(REPLAY, action=transition.Action.WAIT)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("letter"), st.integers(0, 4)),
        st.tuples(st.just("decide"), st.sampled_from([HOLD, REPLAY, WAIT])),
        st.tuples(st.just("retry"), st.integers(1, 4)),
        st.tuples(st.just("published"), st.integers(1, 4)),
        st.tuples(st.just("answered"), st.integers(1, 4)),
        st.tuples(st.just("act"), st.sampled_from(Verb)),
        st.tuples(st.just("compensated"), st.just(None)),
        st.tuples(st.just("lease"), st.just(None)),
    ),
    max_size=25,
)


def test_a_failure_that_is_yet_to_come_happened_now():
    """A worker whose clock is wrong, or a forger, must not stay on top of every page."""
    ahead = START + timedelta(days=400)
    letter = letter_of(first_attempt_at=ahead, last_attempt_at=ahead)
    entry = transition.filed(letter, START).entry
    assert (entry.first_failed_at, entry.last_failed_at) == (START, START)
    again = transition.failed_again(entry, letter_of(replay=1, last_attempt_at=ahead), START).entry
    assert again.last_failed_at == START
    little = letter_of("e2", last_attempt_at=START + transition.SKEW)
    assert transition.filed(little, START).entry.last_failed_at == START + transition.SKEW


CHANGES = {
    "letter": lambda entry, replay: transition.failed_again(entry, letter_of(replay=replay), START),
    "decide": lambda entry, decision: transition.decided(entry, decision, START, "me"),
    "retry": lambda entry, replay: transition.retrying(entry, replay, START, "me", LEASE),
    "published": lambda entry, replay: transition.published(entry, replay, START, START + LEASE),
    "answered": lambda entry, replay: transition.answered(entry, replay, START, "replay"),
    "act": lambda entry, verb: acted(entry, verb, START, "ann"),
    "compensated": lambda entry, _: compensation_sent(entry, START),
    "lease": lambda entry, _: (transition.leased(entry, START), None) if entry.wake_at else None,
}


@given(steps)
def test_every_history_keeps_the_rules(history):
    entry = transition.filed(letter_of(), START).entry
    for step, argument in history:
        change = CHANGES[step](entry, argument)
        if change is None:
            continue
        before, entry = entry, change[0]
        assert entry.revision == before.revision + 1
        assert entry.replays >= before.replays
        assert entry.letter_replay <= entry.replays
        if step == "answered":
            assert argument == before.replays > before.letter_replay
        if step == "letter" and argument < before.replays:
            assert (entry.status, entry.letter_id) == (before.status, before.letter_id)
        if step == "retry":
            assert entry.replays == before.replays + 1
        waits_for_itself = entry.status in {Status.FAILED, Status.WAITING, Status.RETRYING}
        assert (entry.wake_at is not None) or not waits_for_itself
        assert entry.wake_at is None or entry.status in transition.WAKES


@pytest.mark.parametrize("verb", [Verb.SKIP, Verb.ARCHIVE, Verb.RESOLVE, Verb.ESCALATE])
def test_letter_of_the_same_replay_does_not_undo_a_persons_decision(verb):
    entry = transition.filed(letter_of(), START).entry
    decided = acted(entry, verb, START, "ann").entry
    told = transition.failed_again(decided, letter_of(domain="other"), START).entry
    assert (told.status, told.occurrences) == (decided.status, 2)
    assert (told.resolved_by, told.resolved_at) == (decided.resolved_by, decided.resolved_at)
    newer = transition.failed_again(told, letter_of(replay=1), START).entry
    assert newer.status is Status.FAILED


def test_a_letter_of_a_replay_that_was_handled_as_well_is_a_new_failure():
    entry = transition.retrying(transition.filed(letter_of(), START).entry, 1, START, "me", LEASE)
    handled = transition.answered(entry.entry, 1, START, f"{BY_REPLAY}1 (handled)").entry
    assert handled.status is Status.RESOLVED
    told = transition.failed_again(handled, letter_of(replay=1), START).entry
    assert (told.status, told.resolved_by) == (Status.FAILED, "")
