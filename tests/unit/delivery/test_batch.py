"""What a batch may be, and what its handler may answer."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.delivery.batch import (
    LONGEST_WAIT,
    MOST_EVENTS,
    Batch,
    BatchAnswer,
    BatchCall,
    BatchItem,
    BatchResult,
    errors_of,
)
from angzarr.delivery.context import NoCosts
from angzarr.errors import ConfigurationError


@pytest.mark.parametrize("size", [1, 0, -5, MOST_EVENTS + 1, 2.0, "100", True, None])
def test_a_size_that_is_no_number_of_several_events_is_refused(size):
    with pytest.raises(ConfigurationError, match=r"Batch.size must be a whole number from 2 to"):
        Batch(size=size, wait=0.05)


@pytest.mark.parametrize("wait", [0, -1, LONGEST_WAIT + 1, "1", True, None, float("nan")])
def test_a_wait_that_never_ends_or_never_begins_is_refused(wait):
    with pytest.raises(ConfigurationError, match=r"Batch.wait must be a number of seconds"):
        Batch(size=10, wait=wait)


def test_the_bounds_themselves_are_allowed():
    assert Batch(size=2, wait=0.001).size == 2
    assert Batch(size=MOST_EVENTS, wait=LONGEST_WAIT).wait == LONGEST_WAIT


def test_no_answer_means_that_all_were_handled():
    assert errors_of(None, 3) == [None, None, None]


@given(st.sets(st.integers(0, 19)))
def test_a_result_names_those_that_failed_and_no_others(failed):
    errors = {position: OSError(position) for position in failed}

    found = errors_of(BatchResult(errors), 20)

    assert {position: error for position, error in enumerate(found) if error} == errors


@pytest.mark.parametrize("answer", [[], {}, {"batchItemFailures": []}, 7, "ok", False, True])
def test_an_answer_that_says_nothing_of_the_events_is_not_a_success(answer):
    with pytest.raises(TypeError, match="must return None or a BatchResult"):
        errors_of(answer, 2)


@pytest.mark.parametrize("position", [2, -1, "0", True, None])
def test_a_position_that_the_list_does_not_have_is_not_passed_over(position):
    with pytest.raises(ValueError, match="the list has 2 events"):
        errors_of(BatchResult({position: OSError()}), 2)


def test_what_is_no_error_is_refused():
    with pytest.raises(TypeError, match="must name errors"):
        errors_of(BatchResult({0: "it failed"}), 2)


def test_an_error_for_many_is_raised_each_time_with_its_first_traceback():
    try:
        raise OSError
    except OSError as error:
        answer = BatchAnswer(error, error.__traceback__)
    depths = []
    for _ in range(5):
        with pytest.raises(OSError) as raised:
            answer()
        depths.append(len(raised.traceback))
    assert len(set(depths)) == 1


def test_an_answer_without_an_error_is_a_success():
    assert BatchAnswer()() is None


class FakeContext:
    event = "metadata"
    delivery = None
    costs = NoCosts()


def test_an_item_called_by_itself_is_a_batch_of_one():
    seen = []
    BatchItem(BatchCall(seen.append, takes_context=False), "data", FakeContext())()
    assert seen == [["data"]]


def test_the_context_has_the_events_of_the_list():
    seen = []

    def handle(events, ctx):
        seen.append((events, ctx.events))

    BatchItem(BatchCall(handle, takes_context=True), "data", FakeContext())()
    assert seen == [(["data"], ["metadata"])]


def test_a_batch_of_one_raises_the_error_that_its_result_names():
    call = BatchCall(lambda _events: BatchResult({0: OSError("down")}), takes_context=False)
    with pytest.raises(OSError, match="down"):
        BatchItem(call, "data", FakeContext())()


def test_a_coroutine_of_one_raises_the_error_that_its_result_names():
    async def handle(_events):
        return BatchResult({0: OSError("down")})

    item = BatchItem(BatchCall(handle, takes_context=False), "data", FakeContext())
    with pytest.raises(OSError, match="down"):
        asyncio.run(item())
