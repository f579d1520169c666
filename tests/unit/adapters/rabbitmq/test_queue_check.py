"""RabbitMQ's refusals tell how a queue was declared; what may lose letters is named with a cure."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.adapters.rabbitmq.queue_check import (
    UNTOLD,
    ArgumentDifference,
    corrected,
    read_difference,
    weaknesses,
)

OURS = {"x-queue-type": "quorum"}
OURS_ON_4 = {"x-queue-type": "quorum", "x-delivery-limit": -1}


def refusal(name: str, told: str, what: str = "queue 'angzarr-dlq-order' in vhost '/'") -> str:
    return f"PRECONDITION_FAILED - inequivalent arg '{name}' for {what}: {told}"


@pytest.mark.parametrize(("name", "told", "value"), [
    ("x-max-length", "received none but current is the value '1' of type 'signedint'", 1),
    ("x-max-length", "received '3' but current is '2'", 2),
    ("x-delivery-limit", "received '-1' but current is '5'", 5),
    ("x-message-ttl", "received none but current is the value '60000' of type 'long'", 60_000),
    ("x-queue-type", "received the value 'quorum' of type 'longstr' but current is none", None),
    ("x-queue-type", "received 'quorum' but current is 'stream'", "stream"),
    ("x-single-active-consumer", "received none but current is the value 'true' of type 'bool'",
     True),
    ("x-dead-letter-routing-key", "received none but current is the value '7' of type 'longstr'",
     "7"),
    ("x-dead-letter-exchange",
     "received none but current is the value 'a' of type 'b' but is none' of type 'longstr'",
     "a' of type 'b' but is none"),
    ("durable", "received 'true' but current is 'false'", False),
])  # fmt: skip
def test_the_first_difference_is_read(name: str, told: str, value: Any) -> None:
    read = read_difference(refusal(name, told))
    assert read == ArgumentDifference(name, value)
    assert type(read.value) is type(value), "RabbitMQ compares types, too"


def test_a_text_that_was_cut_off_names_what_differs() -> None:
    whole = refusal(
        "x-max-length",
        "received none but current is the value '100000' of type 'signedint'",
        f"queue 'angzarr-dlq-{'o' * 68}' in vhost '{'v' * 60}'",
    )
    assert len(whole) > 255
    assert read_difference(whole[:252] + "...") == ArgumentDifference("x-max-length", UNTOLD)


@pytest.mark.parametrize("text", [
    "", "PRECONDITION_FAILED - invalid arg 'x-max-age' for queue 'q' in vhost '/'",
])  # fmt: skip
def test_a_refusal_for_another_reason_is_no_difference(text: str) -> None:
    assert read_difference(text) is None


@given(st.text(max_size=300))
def test_any_text_is_read_or_left(text: str) -> None:
    assert read_difference(text) is None or "inequivalent arg" in text
    read = read_difference(refusal("x-overflow", text))
    assert read is not None
    assert read.name == "x-overflow"


def test_what_a_restart_or_the_last_reader_takes_along_is_told_from_arguments() -> None:
    names = ("durable", "auto_delete", "exclusive", "x-max-length")
    assert [ArgumentDifference(name, value=True).loses for name in names] == [
        True,
        True,
        True,
        False,
    ]


def test_what_differs_is_declared_as_the_queue_has_it() -> None:
    assert corrected(OURS, ArgumentDifference("x-max-length", 1)) == {**OURS, "x-max-length": 1}
    assert corrected(OURS_ON_4, ArgumentDifference("x-delivery-limit", 5))["x-delivery-limit"] == 5
    assert corrected(OURS_ON_4, ArgumentDifference("x-delivery-limit", None)) == OURS
    assert corrected(OURS, ArgumentDifference("x-queue-type", None)) == {"x-queue-type": "classic"}


@pytest.mark.parametrize("given", [
    OURS,
    OURS_ON_4,
    {"x-queue-type": "classic", "x-max-priority": 3, "x-delivery-limit": -1},
    {"x-max-length": 1, "x-overflow": "reject-publish"},
    {"x-max-length-bytes": 1, "x-overflow": "reject-publish-dlx"},
])  # fmt: skip
def test_a_queue_that_keeps_its_letters_has_no_weakness(given: Any) -> None:
    assert weaknesses(given, given) == []


@pytest.mark.parametrize(("given", "ours", "told"), [
    ({"x-message-ttl": 1, "x-expires": 60_000}, OURS,
     ["x-message-ttl=1 (leave it out)", "x-expires=60000 (leave it out)"]),
    ({"x-max-length": 1}, OURS,
     ["x-max-length=1 (leave it out, or add x-overflow=reject-publish)"]),
    ({"x-max-length-bytes": "?", "x-overflow": "drop-head"}, OURS,
     ["x-max-length-bytes=? (leave it out, or add x-overflow=reject-publish)"]),
    ({"x-dead-letter-exchange": "aside"}, OURS,
     ["what it gives up is moved to x-dead-letter-exchange=aside (leave it out)"]),
    ({**OURS, "x-delivery-limit": 5}, OURS, ["x-delivery-limit=5 (leave it out)"]),
    ({**OURS, "x-delivery-limit": 5}, OURS_ON_4, ["x-delivery-limit=5 (set it to -1)"]),
    (OURS, OURS_ON_4,
     ["no x-delivery-limit, which means 20 unless a policy has another (set it to -1)"]),
])  # fmt: skip
def test_what_may_lose_or_move_letters_is_named_with_the_cure(
    given: Any, ours: Any, told: list[str]
) -> None:
    assert weaknesses(given, ours) == told
