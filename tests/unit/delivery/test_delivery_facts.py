"""The fact of each outcome: its id, its words, and the fields that people search for."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from angzarr.delivery.delivery import WORDS, Refused, Superseded
from angzarr.delivery.delivery_facts import fact_of, fenced_fact
from angzarr.errors import GiveUp, Postpone, Skip
from angzarr.events import headers as names
from angzarr.resilience.backoff import Policy

TWICE = Policy(
    name="twice", base=timedelta(seconds=1), max_delay=timedelta(seconds=1), max_attempts=2,
)  # fmt: skip


def taken(world, error, **headers):
    def call(_data, _context):
        if error:
            raise error

    world.handler(call, policy=TWICE)
    world.take(**headers)
    return world.journal.facts[-1]


@pytest.mark.parametrize(
    ("error", "kind", "subtype", "outcome"),
    [
        (None, "lifecycle", "handled", "handled"),
        (Skip("no"), "lifecycle", "skipped", "skipped"),
        (Postpone(1), "lifecycle", "postponed", "postponed"),
        (ConnectionResetError(), "error", "transient", "retried"),
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
    taken(world, ConnectionResetError("gone"))
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
