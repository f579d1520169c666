"""What a person may do with an entry, for every status."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.ledger import letter_of
from tests.hand_clock import START

from angzarr.analysis.ledger import transition
from angzarr.analysis.ledger.entry import OPEN, Hold, Status
from angzarr.analysis.ledger.operator_actions import LONGEST_NOTE, Verb, acted, refusal

ENTRY = transition.filed(letter_of(), START).entry


def entry_at(status):
    closed = status in {Status.RESOLVED, Status.SKIPPED, Status.ARCHIVED, Status.COMPENSATED}
    by, at = ("replay 1 (handled)", START) if closed else ("", None)
    return replace(ENTRY, status=status, resolved_by=by, resolved_at=at)


@given(st.sampled_from(Status), st.sampled_from(Verb))
def test_a_verb_either_says_why_not_or_leaves_an_entry_at_rest(status, verb):
    entry = entry_at(status)
    change = acted(entry, verb, START, "ann", "because")
    assert (change is None) == bool(refusal(entry, verb))
    if change is None:
        return
    assert change.entry.status is not status
    assert change.entry.revision == entry.revision + 1
    assert (change.entry.wake_at is None) == (verb is not Verb.COMPENSATE)
    assert (change.entry.status in OPEN) == (change.entry.resolved_at is None)
    assert (change.line.who, change.line.what, change.line.detail) == ("ann", verb, "because")


@pytest.mark.parametrize("verb", Verb)
def test_nothing_is_done_to_an_entry_whose_replay_is_under_way(verb):
    assert "wait for its answer" in refusal(entry_at(Status.RETRYING), verb)


@pytest.mark.parametrize("status", sorted(OPEN - {Status.RETRYING}))
def test_an_open_entry_can_be_skipped_archived_and_resolved(status):
    for verb in (Verb.SKIP, Verb.ARCHIVE, Verb.RESOLVE):
        assert not refusal(entry_at(status), verb)


def test_what_was_compensated_is_not_undone():
    assert "cannot be held" in refusal(entry_at(Status.COMPENSATED), Verb.RESTORE)
    assert refusal(entry_at(Status.COMPENSATED), Verb.RESOLVE)


@pytest.mark.parametrize("status", [Status.RESOLVED, Status.COMPENSATED])
def test_what_is_closed_for_good_cannot_be_archived_and_so_never_be_brought_back(status):
    assert "cannot be archived" in refusal(entry_at(status), Verb.ARCHIVE)


def test_what_a_person_brings_back_is_held_for_people():
    change = acted(entry_at(Status.ARCHIVED), Verb.RESTORE, START, "ann")
    assert (change.entry.status, change.entry.hold) == (Status.HELD, Hold.PERSON)


def test_a_note_is_bounded():
    change = acted(entry_at(Status.HELD), Verb.SKIP, START, "ann", "x" * 10_000)
    assert len(change.line.detail) == LONGEST_NOTE
