"""What is done where an aggregate asks for it by flags, in which order, and how that ends (C5)."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.sagas.flags import CompensationStep, Flags, Result
from angzarr.sagas.rejection_answers import (
    RevocationOutcome,
    handle_business_response,
    process_revocation_flags,
)
from angzarr.wire.book_pb2 import EventBook
from angzarr.wire.rejection_pb2 import BusinessResponse, Notification, RevocationResponse

LETTER, ESCALATE, ABORT, REVOKE = (
    CompensationStep.DEAD_LETTER,
    CompensationStep.ESCALATE,
    CompensationStep.ABORT,
    CompensationStep.REVOKE,
)

#: (letter, escalate, abort, revoke) → what is done, in order, and how it ends.
TABLE = {
    (0, 0, 0, 0): ((), Result.DECLINED),
    (1, 0, 0, 0): ((LETTER,), Result.DECLINED),
    (0, 1, 0, 0): ((ESCALATE,), Result.DECLINED),
    (1, 1, 0, 0): ((LETTER, ESCALATE), Result.DECLINED),
    (0, 0, 0, 1): ((REVOKE,), Result.REVOKED),
    (1, 0, 0, 1): ((LETTER, REVOKE), Result.REVOKED),
    (0, 1, 0, 1): ((ESCALATE, REVOKE), Result.REVOKED),
    (1, 1, 0, 1): ((LETTER, ESCALATE, REVOKE), Result.REVOKED),
    (0, 0, 1, 0): ((ABORT,), Result.ABORTED),
    (1, 0, 1, 0): ((LETTER, ABORT), Result.ABORTED),
    (0, 1, 1, 0): ((ESCALATE, ABORT), Result.ABORTED),
    (1, 1, 1, 0): ((LETTER, ESCALATE, ABORT), Result.ABORTED),
    (0, 0, 1, 1): ((ABORT,), Result.ABORTED),
    (1, 0, 1, 1): ((LETTER, ABORT), Result.ABORTED),
    (0, 1, 1, 1): ((ESCALATE, ABORT), Result.ABORTED),
    (1, 1, 1, 1): ((LETTER, ESCALATE, ABORT), Result.ABORTED),
}  # fmt: skip


def asked(letter, escalate, abort, revoke, reason="because"):
    return {
        "send_to_dead_letter_queue": bool(letter), "escalate": bool(escalate),
        "abort": bool(abort), "emit_system_revocation": bool(revoke), "reason": reason,
    }  # fmt: skip


any_flags = st.tuples(*[st.booleans()] * 4).map(lambda four: asked(*four))


def test_the_table_has_every_combination():
    assert set(TABLE) == set(product((0, 1), repeat=4))


@pytest.mark.parametrize(("four", "ends"), TABLE.items())
def test_steps_and_result_are_those_of_the_specification(four, ends):
    flags = Flags(**asked(*four))
    assert (tuple(flags.steps()), flags.result) == ends


@pytest.mark.parametrize("form", [Flags, RevocationResponse])
@pytest.mark.parametrize(("four", "ends"), TABLE.items())
def test_carrying_out_does_every_step_but_the_abort_which_the_result_tells(four, ends, form):
    done = []
    outcome = process_revocation_flags(
        form(**asked(*four)), lambda step, why: done.append((step, why))
    )
    steps, result = ends
    assert done == [(step, "because") for step in steps if step is not ABORT]
    assert outcome == RevocationOutcome(result, "because")


@given(any_flags)
def test_what_is_done_is_in_order_and_nothing_follows_an_abort(given_flags):
    steps = list(Flags(**given_flags).steps())
    order = [step for step in CompensationStep if step in steps]
    assert steps == order
    assert ABORT not in steps[:-1]
    assert not (ABORT in steps and REVOKE in steps)


@given(any_flags)
def test_what_fails_leaves_the_later_steps_undone_and_is_raised(given_flags):
    flags = Flags(**given_flags)
    wanted = [step for step in flags.steps() if step is not ABORT]
    done = []

    def carry_out(step, _why):
        if len(done) == len(wanted) - 1:
            raise OSError("away")
        done.append(step)

    if not wanted:
        return
    with pytest.raises(OSError, match="away"):
        process_revocation_flags(flags, carry_out)
    assert done == wanted[:-1]


@pytest.mark.parametrize(("four", "ends"), TABLE.items())
def test_flags_in_a_response_are_carried_out_at_once(four, ends):
    done = []
    response = BusinessResponse(revocation=RevocationResponse(**asked(*four)))
    outcome = handle_business_response(response, lambda step, _why: done.append(step))
    assert outcome == RevocationOutcome(ends[1], "because")
    assert done == [step for step in ends[0] if step is not ABORT]


@pytest.mark.parametrize(
    "response",
    [
        BusinessResponse(),
        BusinessResponse(events=EventBook()),
        BusinessResponse(notification=Notification()),
    ],
    ids=["nothing", "no pages", "a notification"],
)
def test_of_other_responses_nothing_is_carried_out(response):
    handle_business_response(response, lambda *_said: pytest.fail("nothing was asked for"))
    assert not isinstance(handle_business_response(response, print), RevocationOutcome)
