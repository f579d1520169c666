"""Compensating an entry: the call that undoes it, and who sends it when somebody dies."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.contracts.ledger import letter_of, message_of
from tests.unit.analysis.worker.test_worker import World

from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.ledger.operator_actions import UNSENT
from angzarr.analysis.replay.compensation import Compensator, call_of
from angzarr.dead_letters.letter import Refusal
from angzarr.errors import BrokerUnavailable
from angzarr.events import headers as names
from angzarr.events.event import task_id_for

BODY = json.dumps([[{"total": 3}], {"by": "ann"}, {"callbacks": ["x"], "chain": ["y"]}]).encode()


@pytest.fixture
def world():
    return World()


def compensator_of(world):
    return Compensator(
        ledger=world.ledger, replayer=world.replayer, compensations=world.compensations
    )


def filed(world, **fields):
    letter = letter_of(message=replace(message_of(), body=BODY), **fields)
    entry = world.ledger.add_failed_event(letter)
    return entry, letter


def test_it_gets_what_the_handler_got_and_nothing_that_followed_it():
    letter = letter_of(message=replace(message_of(**{names.TENANT_ID: "acme"}), body=BODY))
    call = call_of(letter, "orders.unsync")
    assert (call.task, call.args, call.kwargs) == ("orders.unsync", ({"total": 3},), {"by": "ann"})
    assert call.headers[names.CAUSATION_ID] == letter.event.id
    assert call.task_id == task_id_for(call.headers[names.EVENT_ID], "orders.unsync")
    assert call.headers[names.TENANT_ID] == "acme"
    assert call.headers[names.COMPENSATES] == letter.id
    assert not {names.LETTER_ID, names.REPLAY, names.HOP, names.ATTEMPT} & set(call.headers)
    assert call == call_of(letter, "orders.unsync"), "sent twice it is one task"


def test_each_handler_and_each_compensation_has_an_event_of_its_own():
    """One claim for all of them would have the second taken for a duplicate of the first."""
    letter = letter_of(message=replace(message_of(), body=BODY))
    calls = [
        call_of(replace(letter, handler=handler), task)
        for handler in ("orders.sync", "mail.send")
        for task in ("orders.unsync", "mail.unsend")
    ]
    ids = {call.headers[names.EVENT_ID] for call in calls} | {letter.event.id}
    assert len(ids) == 5


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"content_type": "application/x-python-serialize"}, "not JSON"),
        ({"body": b"\xff"}, "holds no arguments"),
        ({"body": b"[1, 2]"}, "holds no arguments"),
        ({"body": b"[" * 100_000}, "holds no arguments"),
    ],
)
def test_what_holds_no_arguments_is_left_to_a_person(fields, why):
    found = call_of(letter_of(message=replace(message_of(), **fields)), "orders.unsync")
    assert isinstance(found, Refusal)
    assert why in found


def test_an_entry_is_compensated_once_and_then_no_more(world):
    entry, letter = filed(world)
    found = compensator_of(world)
    assert found.problem(entry, letter) == ""
    assert found.compensate(entry, letter, by="ann", note="refund") == ""
    after = world.ledger.open(entry.id)
    assert (after.entry.status, after.entry.resolved_by) == (Status.COMPENSATED, "ann")
    assert after.entry.wake_at is None
    assert [line.what for line in after.history] == ["failed", "compensate", "published"]
    assert "compensated already" in found.compensate(after.entry, letter, by="bob")
    assert "changed meanwhile" in found.compensate(entry, letter, by="bob")
    assert len(world.compensations.sent) == 1


def test_a_handler_without_a_compensation_says_what_to_do(world):
    entry, letter = filed(world, handler="mail.send")
    assert "register it with compensation=" in compensator_of(world).problem(entry, letter)
    assert "resolve the entry" in compensator_of(world).compensate(entry, letter, by="ann")
    assert world.ledger.open(entry.id).entry == entry


def test_what_was_decided_and_not_sent_is_sent_by_the_worker_with_the_same_ids(world):
    entry, letter = filed(world)
    world.compensations.away = True
    with pytest.raises(BrokerUnavailable):
        compensator_of(world).compensate(entry, letter, by="ann")
    assert world.ledger.open(entry.id).entry.status is Status.COMPENSATED
    world.clock.sleep(UNSENT)
    assert world.worker.step().away == ["due entries"]
    world.compensations.away = False
    world.clock.sleep(UNSENT)
    world.worker.step()
    (sent,) = world.compensations.sent
    assert sent == call_of(letter, "orders.unsync")
    world.clock.sleep(UNSENT)
    world.worker.step()
    assert len(world.compensations.sent) == 1


def test_a_compensation_that_cannot_be_sent_any_more_is_held(world):
    entry, letter = filed(world)
    world.compensations.away = True
    with pytest.raises(BrokerUnavailable):
        compensator_of(world).compensate(entry, letter, by="ann")
    world.compensations.of = lambda _handler: ""
    world.clock.sleep(UNSENT)
    world.worker.step()
    after = world.ledger.open(entry.id).entry
    assert after.status is Status.HELD
    assert "names no compensation" in after.evidence
    assert (after.resolved_by, after.resolved_at) == ("", None)
