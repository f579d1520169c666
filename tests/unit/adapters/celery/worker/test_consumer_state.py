"""What becomes of a message that a worker's parent fails to take."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from angzarr.adapters.celery.worker.consumer_state import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    MOST_TRIES,
    ReceiptFailures,
)

BUG, FAULT = TypeError("a bug"), RuntimeError("can't start new thread")


@pytest.fixture
def clock():
    return SimpleNamespace(now=100.0)


@pytest.fixture
def receipts(clock):
    return ReceiptFailures(lambda: clock.now)


def message(name="a", payload=([], {}, {}), **headers):
    return SimpleNamespace(
        headers={"task": "t", "id": name, **headers}, payload=payload, body=f"[{name}]".encode()
    )


PROTOCOL_1 = SimpleNamespace(
    headers={}, body=b"{}", payload={"task": "t", "id": "a", "args": [], "kwargs": {}}
)


@pytest.mark.parametrize("one", [message(), PROTOCOL_1])
@pytest.mark.parametrize("error", [MemoryError(), FAULT])
def test_a_fault_of_the_machine_is_never_the_messages_however_often(receipts, one, error):
    assert not any(receipts.fault_of(one, error) for _ in range(100))


@pytest.mark.parametrize(
    "one",
    [
        message(name=None), message(task=["t"]), message(payload=5), message(payload=[1]),
        message(payload=None), message(payload="text"),
        message(timelimit="soon"),
        SimpleNamespace(headers=None, body=b"", payload=None),
        SimpleNamespace(headers={}, body=b"", payload={"args": 1, "id": "a"}),
    ],
)  # fmt: skip
def test_a_message_of_another_shape_is_at_fault_at_once_unless_the_machine_is(receipts, one):
    code, reason = receipts.fault_of(one, BUG)
    assert code == "INVALID_TASK"
    assert str(reason).startswith(("its ", "the options in its body ")), (
        "Celery's stumble says less"
    )
    assert not receipts.fault_of(one, FAULT)


def test_memory_that_runs_out_while_the_shape_is_looked_at_is_no_proof(receipts):
    class Large(SimpleNamespace):
        @property
        def payload(self):
            raise MemoryError

    assert not receipts.fault_of(Large(headers={"task": "t", "id": "a"}), BUG)


@pytest.mark.parametrize("one", [message(), PROTOCOL_1])
def test_an_error_that_nobody_foresaw_is_the_messages_once_it_came_often(receipts, one):
    tried = [receipts.fault_of(one, BUG) for _ in range(MOST_TRIES)]
    assert tried == [None] * (MOST_TRIES - 1) + [("NOT_TAKEN", BUG)]
    assert not receipts.fault_of(message(name="another"), BUG)


def test_the_pause_grows_while_nothing_can_be_taken_and_begins_anew_after(receipts, clock, caplog):
    pauses = []
    for _ in range(7):
        pauses.append(receipts.fail(FAULT, "a message"))
        clock.now += pauses[-1]
    assert pauses[0] == FIRST_PAUSE
    assert pauses[-1] == LONGEST_PAUSE
    assert caplog.text.count("message_not_taken") == 2, "once a minute"
    assert "raise this worker's limits" in caplog.text
    receipts.succeed()
    assert receipts.fail(FAULT, "a message") == FIRST_PAUSE


def test_what_fails_in_one_burst_shares_its_pause(receipts, clock):
    assert {receipts.fail(FAULT, "a message") for _ in range(12)} == {FIRST_PAUSE}
    clock.now += FIRST_PAUSE
    assert {receipts.fail(FAULT, "a message") for _ in range(12)} == {2 * FIRST_PAUSE}


def test_it_tells_how_long_nothing_could_be_taken(receipts, clock):
    assert receipts.lasts() is None
    receipts.fail(FAULT, "a message")
    clock.now += 40
    receipts.fail(FAULT, "a message")
    assert receipts.lasts() == 40
    clock.now += 2 * LONGEST_PAUSE + 1
    assert receipts.lasts() is None, "another worker took it"
    receipts.fail(FAULT, "a message")
    receipts.succeed()
    assert receipts.lasts() is None
