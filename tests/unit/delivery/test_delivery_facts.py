"""The fact of each outcome: its id, its words, and the fields that people search for."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.delivery.delivery import WORDS, Refused, Retried, Superseded
from angzarr.delivery.delivery_facts import (
    error_subtype,
    fact_of,
    fenced_fact,
    retry_fact_id,
)
from angzarr.errors import GiveUp, Postpone, Skip
from angzarr.events import headers as names
from angzarr.facts.resolution import letter_fact_id
from angzarr.resilience.backoff import Policy
from angzarr.resilience.category import Category, Classification
from angzarr.resilience.idempotency import key_for

TWICE = Policy(
    name="twice", base=timedelta(seconds=1), max_delay=timedelta(seconds=1), max_attempts=2,
)  # fmt: skip


def ending(world, *errors):
    """Let the handler's runs end so, one after the other; None: well."""
    left = list(errors)

    def call(_data, _context):
        if error := left.pop(0):
            raise error

    world.handler(call, policy=TWICE)


def last_fact(world, delivery=None, **headers):
    world.take(*([] if delivery is None else [delivery]), **headers)
    return world.journal.facts[-1]


def taken(world, error, **headers):
    ending(world, error)
    return last_fact(world, **headers)


@pytest.mark.parametrize(
    ("error", "kind", "subtype", "outcome"),
    [
        (None, "lifecycle", "handled", "handled"),
        (Skip("no"), "lifecycle", "skipped", "skipped"),
        (Postpone(1), "lifecycle", "postponed", "postponed"),
        (ConnectionResetError(), "error", "tool_failure", "retried"),
        (GiveUp("no"), "error", "refused", "dead_lettered"),
    ],
)
def test_each_outcome_is_a_fact_of_its_kind(world, error, kind, subtype, outcome):
    fact = taken(world, error)
    assert (fact.type, fact.subtype, fact.data["outcome"]) == (kind, subtype, outcome)
    assert fact.at == world.clock.now()
    json.dumps(dict(fact.data))


def test_a_fact_names_event_handler_tenant_and_entity(world):
    fact = taken(
        world, None,
        **{names.TENANT_ID: "acme", names.ROOT: "o-1", names.CORRELATION_ID: "c", names.REPLAY: 2},
    )  # fmt: skip
    assert (fact.tenant_id, fact.entity_id, fact.tool_id) == ("acme", "o-1", "h")
    assert fact.event_id == "e1"
    wanted = {"correlation_id": "c", "replay": 2, "retry_attempt": 1}
    assert wanted.items() <= fact.data.items()


def test_a_retry_says_its_error_and_its_delay_in_milliseconds(world):
    data = taken(world, ConnectionResetError("gone")).data
    assert (data["error_message"], data["max_retries"], data["delay_ms"]) == ("gone", 1, 1000)


def test_the_last_attempt_is_max_retries_exceeded_and_names_its_letter(world):
    ending(world, ConnectionResetError("gone"), ConnectionResetError("gone"))
    last_fact(world)
    world.clock.sleep(timedelta(seconds=5))
    world.take(world.last_copy())
    fact = world.journal.facts[-1]
    assert fact.subtype == "max_retries_exceeded"
    assert fact.data["letter_id"] == world.journal.letters[0].id


def test_a_fact_has_the_same_id_when_settle_is_repeated_and_another_for_each_delivery(world):
    one, other = world.delivery(), world.delivery()
    ids = [fact_of(delivery, Superseded(), world.clock.now()).id for delivery in (one, one, other)]
    assert ids[0] == ids[1] != ids[2]


def test_a_fenced_fact_never_replaces_the_fact_of_an_outcome(world):
    delivery, now = world.delivery(), world.clock.now()
    fenced = fenced_fact(delivery, now)
    assert fenced.subtype == "fenced"
    assert fenced.id != fact_of(delivery, Superseded(), now).id


def test_an_error_that_cannot_be_printed_still_makes_a_fact(world):
    class Unprintable(Exception):
        def __str__(self):
            raise RuntimeError

    assert "Unprintable" in taken(world, Unprintable()).data["error_message"]


def test_every_outcome_has_a_word(world):
    for outcome in (Refused(error=ValueError()), Superseded()):
        assert fact_of(world.delivery(), outcome, world.clock.now()).subtype == "duplicate"
    assert set(WORDS.values()) == {
        "handled", "duplicate", "skipped", "postponed", "parked", "retried", "dead_lettered",
    }  # fmt: skip


# -- what an error is, and what resolved it ----------------------------------------------------


@pytest.mark.parametrize(
    ("category", "code", "subtype"),
    [
        (Category.TRANSIENT, "HTTP_429", "rate_limit"),
        (Category.TRANSIENT, "ThrottlingException", "rate_limit"),
        (Category.TRANSIENT, "TIMEOUT", "timeout"),
        (Category.SERVER, "HTTP_504", "timeout"),
        (Category.SERVER, "HTTP_500", "external"),
        (Category.EXTERNAL, "TLS", "external"),
        (Category.CLIENT, "HTTP_422", "validation"),
        (Category.INTEGRITY, "SQLSTATE_23505", "validation"),
        (Category.TRANSIENT, "CONNECTION", "tool_failure"),
        (Category.UNKNOWN, "UNKNOWN", "tool_failure"),
    ],
)
def test_an_error_has_one_of_five_kinds(category, code, subtype):
    assert error_subtype(category, code) == subtype


@given(st.sampled_from(Category), st.text(max_size=20))
def test_every_error_has_a_kind(category, code):
    kinds = {"rate_limit", "timeout", "external", "validation", "tool_failure"}
    assert error_subtype(category, code) in kinds


@given(
    st.lists(
        st.tuples(st.text(max_size=5), st.text(max_size=5), st.integers(0, 20), st.integers(1, 20)),
        unique=True,
    )
)
def test_no_two_attempts_share_the_id_of_their_error(attempts):
    ids = {
        retry_fact_id(key_for(handler, event), replay, attempt)
        for handler, event, replay, attempt in attempts
    }
    assert len(ids) == len(attempts)


def test_an_attempt_that_failed_again_after_a_kill_is_the_same_fact(world):
    ending(world, ConnectionResetError(), ConnectionResetError())
    first = last_fact(world)
    world.journal.facts.clear()
    other = world.delivery()
    assert other.token != world.delivery().token
    retried = Retried(
        delay=timedelta(0),
        error=ConnectionResetError(),
        seen=Classification(category=Category.TRANSIENT),
        max_attempts=2,
    )
    assert fact_of(other, retried, world.clock.now()).id == first.id


def test_a_retry_that_succeeds_names_the_error_that_it_resolved(world):
    ending(world, ConnectionResetError(), None)
    failed = last_fact(world)
    world.clock.sleep(timedelta(seconds=5))
    well = last_fact(world, world.last_copy())
    assert (well.subtype, well.resolves) == ("handled", failed.id)
    assert failed.resolves is None


@pytest.mark.parametrize("error", [None, Skip("no")])
def test_a_replay_that_ends_well_names_the_fact_of_its_letter(world, error):
    ending(world, GiveUp("no"), error)
    dead = last_fact(world)
    letter = world.journal.letters[0].id
    assert dead.id == letter_fact_id(letter)
    replayed = last_fact(world, **{names.REPLAY: 1, names.LETTER_ID: letter})
    assert replayed.resolves == dead.id


def test_a_replay_is_a_fact_that_names_its_letter_and_where_that_came_from(world):
    where = {names.REPLAY: 2, names.LETTER_ID: "letter", names.QUEUE: "first"}
    taken(world, ConnectionResetError(), **where)
    retry, failed = world.journal.facts
    assert (retry.id, retry.subtype, retry.type) == ("letter:dlq_retry:2", "dlq_retry", "lifecycle")
    wanted = {"dlq_message_id": "letter", "original_queue": "first", "reason": "replay 2"}
    assert wanted.items() <= retry.data.items()
    assert failed.subtype == "tool_failure"


def test_the_fact_of_a_replay_says_who_asked_for_it(world):
    said = {names.REPLAY: 2, names.LETTER_ID: "letter", names.REPLAYED_BY: "ann@desk"}
    taken(world, None, **said)
    assert world.journal.facts[0].data["by"] == "ann@desk"


@pytest.mark.parametrize("who", [7, ["x"], None, "", "x\n" * 100_000])
def test_a_hostile_name_in_a_replays_headers_is_cut_or_left_out(world, who):
    taken(world, None, **{names.LETTER_ID: "letter", names.REPLAYED_BY: who})
    by = world.journal.facts[0].data["by"]
    assert by is None or ("\n" not in by and len(by) <= 4 * names.LONGEST_REASON)


def test_the_fact_of_a_skip_says_why_it_was_sent(world):
    said = {names.LETTER_ID: "letter", names.SKIP: "skip by ann: a test order"}
    taken(world, None, **said)
    retry = next(one for one in world.journal.facts if one.subtype == "dlq_retry")
    assert retry.data["reason"] == "skip by ann: a test order"


def test_only_the_first_attempt_of_a_replay_tells_of_it(world):
    ending(world, ConnectionResetError(), None)
    world.take(**{names.REPLAY: 2, names.LETTER_ID: "letter"})
    world.clock.sleep(timedelta(seconds=5))
    world.take(world.last_copy())
    told = [fact.subtype for fact in world.journal.facts]
    assert told == ["dlq_retry", "tool_failure", "handled"]


@pytest.mark.parametrize("queue", [7, ["x"], None])
def test_a_hostile_queue_in_a_replays_headers_is_not_believed(world, queue):
    taken(world, None, **{names.LETTER_ID: "letter", names.QUEUE: queue})
    assert isinstance(world.journal.facts[0].data["original_queue"], str)


def test_a_replay_that_fails_resolves_nothing(world):
    replayed = taken(world, GiveUp("no"), **{names.REPLAY: 1, names.LETTER_ID: "letter"})
    assert replayed.resolves is None
    assert replayed.id != letter_fact_id("letter")


def test_a_first_success_resolves_nothing(world):
    assert taken(world, None).resolves is None


def test_used_up_retries_say_how_many_there_were(world):
    ending(world, ConnectionResetError("gone"), ConnectionResetError("gone"))
    last_fact(world)
    world.clock.sleep(timedelta(seconds=5))
    world.take(world.last_copy())
    data = world.journal.facts[-1].data
    assert (data["max_retries"], data["error_type"], data["category"]) == (
        1,
        "terminal",
        "transient",
    )
    assert {"queue_name", "message_id", "letter_id"} <= data.keys()
