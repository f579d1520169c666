from __future__ import annotations

from dataclasses import replace

import pytest
from tests.contracts.ledger import letter_of, message_of
from tests.hand_clock import START

from angzarr.analysis.ledger.failure import Unreadable
from angzarr.analysis.replay.replay import ReplayTargets, replay_message
from angzarr.dead_letters.letter import Distrusted, Reason
from angzarr.events import headers as names

TARGETS = ReplayTargets(tasks={"orders.sync"}, queues={"orders"})


def used_letter():
    """A letter whose message has been through attempts, copies and a broker."""
    used = {
        names.ATTEMPT: 5,
        names.HOP: 4,
        names.FIRST_ATTEMPT_AT: START.isoformat(),
        names.REST: 20,
        names.WAITED_FOR: START.isoformat(),
        "x-death": [{"count": 2}],
        "x-delivery-count": 7,
        "retries": 4,
        "eta": START.isoformat(),
        "expires": START.isoformat(),
        names.CORRELATION_ID: "c1",
        names.CONFIG_PINS: '{"prices": "7"}',
        names.TRACEPARENT: "00-ab-cd-01",
        "group": "g1",
        "timelimit": [30, 20],
    }
    message = replace(
        message_of(**used),
        priority=7,
        properties={"correlation_id": "task-e1", "expiration": "100"},
    )
    return letter_of(message=message)


def test_replay_carries_the_headers_of_the_spec():
    letter = used_letter()
    headers = replay_message(letter, 2).headers
    assert headers["X-Retry-From-DLQ"] == "true"
    assert headers["X-Original-Message-ID"] == letter.message.id == "task-e1"
    assert headers["X-DLQ-Attempts"] == 2
    assert headers["angzarr-letter-id"] == letter.id


def test_replay_starts_afresh():
    message = replay_message(used_letter(), 1)
    gone = {names.ATTEMPT, names.HOP, names.FIRST_ATTEMPT_AT, names.REST, names.WAITED_FOR}
    assert not (gone | set(names.BROKER_COUNTERS)) & message.headers.keys()
    assert (message.headers["retries"], message.headers["eta"], message.headers["expires"]) == (
        0,
        None,
        None,
    )
    assert message.properties == {"correlation_id": "task-e1"}


def test_replay_keeps_everything_else_word_for_word():
    letter = used_letter()
    message = replay_message(letter, 1)
    assert message.body == letter.message.body
    assert (message.queue, message.priority, message.content_type) == (
        "orders",
        7,
        "application/json",
    )
    for name in (
        "id", "task", "group", "timelimit", names.EVENT_ID, names.CORRELATION_ID,
        names.CONFIG_PINS, names.TRACEPARENT,
    ):  # fmt: skip
        assert message.headers[name] == letter.message.headers[name]


def test_second_replay_still_names_the_original_message():
    first = replay_message(used_letter(), 1)
    headers = {**first.headers, names.ORIGINAL_MESSAGE_ID: "the-first"}
    again = letter_of(replay=1, message=replace(first, headers=headers))
    second = replay_message(again, 2)
    assert second.headers[names.ORIGINAL_MESSAGE_ID] == "the-first"
    assert second.headers[names.LETTER_ID] == again.id


def test_same_replay_is_the_same_message():
    revoked = letter_of(reason=Reason.REVOKED)
    for letter in (used_letter(), revoked):
        assert replay_message(letter, 1) == replay_message(letter, 1)


def test_revoked_task_gets_a_new_id_and_stays_the_same_event():
    message = message_of()
    bare = {k: v for k, v in message.headers.items() if k != names.EVENT_ID}
    revoked = letter_of(
        "task-e1", reason=Reason.REVOKED,
        message=replace(message, headers=bare),
    )  # fmt: skip
    replayed = replay_message(revoked, 1)
    assert replayed.id != revoked.message.id
    assert replayed.headers[names.EVENT_ID] == "task-e1"
    assert replayed.headers[names.ORIGINAL_MESSAGE_ID] == "task-e1"


@pytest.mark.parametrize(
    ("letter", "problem"),
    [
        (letter_of(), ""),
        (
            letter_of(message=message_of(task="os.system")),
            "no handler is registered as 'os.system'",
        ),
        (letter_of(message=replace(message_of(), queue="root")), "knows no queue 'root'"),
        (letter_of(message=message_of(task="")), "no Celery message"),
        (letter_of(envelope=b"others"), "fields that this release does not know"),
        (
            Unreadable(domain="d", raw=b"?", content_type="", problem="x", received_at=START),
            "could not be read",
        ),
    ],
)
def test_only_registered_tasks_and_known_queues_are_targets(letter, problem):
    found = TARGETS.problem(letter)
    assert problem in found
    assert bool(problem) == bool(found)


def test_a_second_body_under_one_event_id_is_never_replayed_under_it():
    conflict = letter_of(reason=Reason.CONFLICT)
    assert "another body" in TARGETS.problem(conflict)
    assert TARGETS.problem(letter_of()) == ""


# -- what a letter must pass before it is sent ------------------------------------------------


def test_what_is_sent_is_the_cleared_message():
    opened = letter_of(message=message_of(secret="kept"))
    targets = replace(TARGETS, clear=lambda _letter: opened)
    assert targets.cleared(letter_of()) is opened
    assert targets.problem(letter_of()) == ""


def test_a_cleared_message_must_have_a_target_too():
    astray = letter_of(message=message_of(task="os.system"))
    targets = replace(TARGETS, clear=lambda _letter: astray)
    assert "no handler is registered as 'os.system'" in targets.problem(letter_of())


def test_a_refusal_is_the_problem_and_nothing_else_is_looked_at():
    targets = replace(TARGETS, clear=lambda _letter: Distrusted("forged"))
    conflict = letter_of(reason=Reason.CONFLICT)
    assert isinstance(targets.problem(conflict), Distrusted)
    broken = Unreadable(domain="d", raw=b"?", content_type="", problem="x", received_at=START)
    assert "could not be read" in targets.problem(broken)
