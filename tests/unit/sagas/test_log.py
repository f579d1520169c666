"""What is kept of a rejected command, and what of that is looked for."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from tests.chain_world import a_rejection, address
from tests.hand_clock import START

from angzarr.adapters.memory.event_store import MemoryRejectionLog
from angzarr.sagas.log import (
    ENDED,
    MAX_FLOW,
    MAX_TEXT,
    SETTLED,
    AskedAgain,
    CaseFilter,
    RejectionStatus,
    asked_again,
    case_of,
    fits,
    noted,
)


class Seat(BaseModel):
    player_id: str = "p-1"


LATER = START + timedelta(hours=1)
TOLD = case_of(a_rejection(Seat(), correlation_id="flow"), START)
DONE = replace(TOLD, status=RejectionStatus.COMPENSATED, answer="", first_event=1, event_count=1)


def test_a_case_begins_as_told():
    assert (TOLD.status, TOLD.answer, TOLD.first_event, TOLD.event_count) == (
        RejectionStatus.TOLD, "", None, 0,
    )  # fmt: skip
    assert (TOLD.saga, TOLD.source, TOLD.source_sequence) == ("seating", address(), 0)
    assert (TOLD.target, TOLD.command_id, TOLD.command_type) == (
        ("table", "t-1", ""),
        "c-1",
        "Seat",
    )
    assert (TOLD.reason, TOLD.correlation_id) == ("full", "flow")
    assert (TOLD.rejected_at, TOLD.changed_at) == (START, START)


def test_what_a_stranger_wrote_is_kept_up_to_a_length():
    """An index takes no correlation id of any length, and a delivery would wait for it for ever."""
    case = case_of(a_rejection(Seat(), reason="x" * 9_000, correlation_id="🂡" * 9_000), START)
    assert len(case.reason) == MAX_TEXT
    assert len(case.correlation_id) == MAX_FLOW
    assert MAX_FLOW * 12 + 2 < 2_704, "as JSON, twelve bytes a character"


def test_all_but_told_are_ends():
    assert ENDED | {RejectionStatus.TOLD} == set(RejectionStatus)
    assert RejectionStatus.TOLD not in ENDED


def test_what_was_not_there_is_kept():
    assert noted(None, DONE) == DONE


@pytest.mark.parametrize("status", RejectionStatus)
def test_what_is_told_again_stays_as_it_is(status):
    kept = replace(TOLD, status=status)
    assert noted(kept, replace(TOLD, changed_at=LATER)) == kept


@pytest.mark.parametrize("kept", sorted(SETTLED))
@pytest.mark.parametrize("status", RejectionStatus)
def test_what_is_settled_stays_so_though_a_late_delivery_says_otherwise(kept, status):
    before = replace(DONE, status=kept, answer="so")
    late = replace(TOLD, status=status, answer="late", changed_at=LATER)
    assert noted(before, late).status is kept
    assert (noted(before, late) == before) is (status is not kept)


@pytest.mark.parametrize("kept", sorted(set(RejectionStatus) - SETTLED))
@pytest.mark.parametrize("status", sorted(ENDED))
def test_the_last_end_stands_with_the_moment_of_the_first_rejection(kept, status):
    before = replace(TOLD, status=kept, asked_again=2)
    end = replace(DONE, status=status, rejected_at=LATER, changed_at=LATER)
    assert noted(before, end) == replace(end, rejected_at=START, asked_again=2)


def test_a_case_that_is_asked_again_is_told_again():
    asked = AskedAgain("kim", LATER, "mended")
    again = asked_again(replace(DONE, status=RejectionStatus.FAILED, answer="why"), asked)
    assert (again.status, again.answer, again.asked_again) == (RejectionStatus.TOLD, "", 1)
    assert (again.changed_at, again.rejected_at) == (LATER, START)
    assert (again.asked_by, again.note) == ("kim", "mended")
    assert asked_again(again, asked).asked_again == 2


@pytest.mark.parametrize(
    "wanted",
    [
        CaseFilter(),
        CaseFilter(saga="seating"),
        CaseFilter(domain="player"),
        CaseFilter(status=RejectionStatus.TOLD),
        CaseFilter(correlation_id="flow"),
        CaseFilter("seating", "player", RejectionStatus.TOLD, "flow"),
    ],
)
def test_a_case_is_one_of_those_that_are_wanted(wanted):
    assert fits(TOLD, wanted)


@given(st.integers(0, 3), st.integers(0, 15))
def test_one_word_that_differs_is_enough(field, asked):
    odd = ("other", "table", RejectionStatus.FAILED, "")
    right = ("seating", "player", RejectionStatus.TOLD, "flow")
    said = [word if asked >> index & 1 else None for index, word in enumerate(right)]
    said[field] = odd[field]
    assert not fits(TOLD, CaseFilter(*said))


def test_whoever_notes_a_case_is_told_what_is_kept():
    """A rejection that comes again is told with the moment of the first one."""
    log = MemoryRejectionLog()
    assert log.note(TOLD) == TOLD
    assert log.note(replace(TOLD, rejected_at=LATER, changed_at=LATER)) == TOLD
    end = replace(DONE, rejected_at=LATER, changed_at=LATER)
    assert log.note(end) == replace(end, rejected_at=START)
