"""The analysis worker before letters that are signed, sealed, redacted, forged or of others."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.contracts.ledger import letter_of, message_of
from tests.hand_clock import HandClock
from tests.unit.analysis.worker.test_worker import PAUSE, FakePublisher, World
from tests.unit.dead_letters.test_foreign_replay import ROUTES, binary, wire
from tests.unit.dead_letters.test_protection import (
    CIPHER,
    SIGN,
    protection,
    secret_letter,
)

from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.replay.replay import Replayer, ReplayTargets
from angzarr.dead_letters.codec import decode, encode
from angzarr.dead_letters.letter import letter_id
from angzarr.dead_letters.protection import Clearance
from angzarr.events import headers as names
from sqlite_ledger import SqliteLedger, put_letter

CLEAR = Clearance(signatures=SIGN, cipher=CIPHER)
GUARD = protection(signatures=SIGN)


@pytest.fixture
def world():
    world = World()
    world.tasks |= {"bank.take"}
    return world


def clear_with(world, clear):
    targets = ReplayTargets(tasks=world.tasks, queues={"orders", "bank"}, clear=clear)
    world.replayer = replace(world.replayer, targets=targets)
    world.worker = world.start_worker()


def filed(world, letter, clear=CLEAR):
    """File *letter* as it would come out of its queue, and let time go by."""
    clear_with(world, clear)
    world.queue.send(decode(*encode(letter)))
    world.worker.step()
    world.clock.sleep(PAUSE)
    world.worker.step()
    return world.entry


def test_a_redacted_and_sealed_letter_is_replayed_with_the_original_value(world):
    entry = filed(world, GUARD(secret_letter()))
    assert entry.status is Status.RETRYING
    (sent,) = world.publisher.sent
    assert json.loads(sent.body)[0][0]["password"] == "hunter2"
    assert sent.headers["authorization"] == "Basic aHVudGVyMg"
    assert (sent.content_type, sent.content_encoding) == ("application/json", "utf-8")
    assert sent.headers[names.LETTER_ID] == entry.letter_id


@pytest.mark.parametrize(
    ("letter", "clear", "said"),
    [
        (replace(GUARD(letter_of()), handler="other"), CLEAR, "it was forged or changed"),
        (letter_of(), CLEAR, "it is not signed"),
        (protection(cipher=None)(secret_letter()), Clearance(), "no key was there to seal them"),
        (GUARD(secret_letter()), Clearance(signatures=SIGN), "set dlq.encryption_keys"),
        (binary(wire()), Clearance(), "name one under dlq.foreign_routes"),
    ],
)
def test_what_may_not_be_replayed_is_held_with_the_reason_and_stays_so(world, letter, clear, said):
    entry = filed(world, letter, clear)
    assert entry.status is Status.HELD
    assert said in entry.evidence
    failure = world.ledger.open(entry.id).failure
    assert said in world.replayer.replay(entry, failure, by="me")
    assert world.publisher.sent == []


def test_a_letter_that_is_changed_in_the_ledger_is_not_sent(world):
    clear_with(world, CLEAR)
    world.queue.send(GUARD(letter_of()))
    world.worker.step()
    entry = world.entry
    assert entry.status is Status.WAITING
    failure = world.ledger.open(entry.id).failure
    altered = replace(failure, message=message_of(more="headers"))
    put_letter(world.ledger.database, entry.id, altered)
    world.clock.sleep(PAUSE)
    world.worker.step()
    assert world.entry.status is Status.HELD
    assert "forged or changed" in world.entry.evidence
    assert world.publisher.sent == []


def test_a_letter_of_others_is_replayed_on_its_route_and_its_answer_closes_it(world):
    entry = filed(world, binary(wire()), Clearance(routes=ROUTES))
    assert entry.status is Status.HELD, "nothing says that it may pass by itself"
    failure = world.ledger.open(entry.id).failure
    assert world.replayer.replay(entry, failure, by="me") == ""
    (sent,) = world.publisher.sent
    assert (sent.task, sent.queue) == ("bank.take", "bank")
    assert sent.headers[names.LETTER_ID] == entry.letter_id == "theirs-7"
    assert sent.headers[names.REPLAY] == 1
    world.answer(sent)
    world.worker.step()
    assert world.entry.status is Status.RESOLVED


def test_the_failed_replay_of_a_letter_of_others_goes_on_in_the_same_entry(world):
    entry = filed(world, binary(wire()), Clearance(routes=ROUTES))
    world.replayer.replay(entry, world.ledger.open(entry.id).failure, by="me")
    (sent,) = world.publisher.sent
    event = replace(letter_of().event, id="theirs-7", type="bank.v1.MoneyLost")
    again = letter_of(
        id=letter_id("bank", "bank.take", "theirs-7", 1), domain="bank", handler="bank.take",
        message=sent, event=event, replay=1,
    )  # fmt: skip
    world.queue.send(again)
    world.worker.step()
    assert world.entry.id == entry.id
    assert (world.entry.handler_name, world.entry.event_id) == ("bank.take", "theirs-7")
    assert world.entry.status is Status.WAITING


def test_a_dry_run_says_the_same_and_changes_nothing():
    ledger, publisher = SqliteLedger(HandClock()), FakePublisher()
    replayer = Replayer(
        ledger=ledger, publisher=publisher, clock=HandClock(),
        answer_deadline=timedelta(hours=1),
        targets=ReplayTargets(tasks={"orders.sync"}, queues={"orders"}, clear=CLEAR),
    )  # fmt: skip
    forged = replace(GUARD(letter_of()), handler="other")
    entry = ledger.add_failed_event(forged)
    assert "forged" in replayer.problem(entry, forged)
    assert (ledger.open(entry.id).entry, publisher.sent) == (entry, [])
