from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.contracts.ledger import letter_of, message_of
from tests.unit.analysis.worker.test_worker import LEASE, Killed, World

from angzarr.aggregates.command import task_of
from angzarr.analysis.ledger.entry import Status, read_word
from angzarr.analysis.ledger.replay_options import AS_IT_IS, Expectation, ReplayOrder, continued
from angzarr.analysis.replay.replay import ReplayTargets, replay_message
from angzarr.dead_letters.letter import Refusal
from angzarr.events import headers as names

TARGETS = ReplayTargets(
    tasks={"orders.sync", "orders.new"},
    queues={"orders", "other", "new"},
    homes={"orders.new": "new", "orders.sync": "orders"},
)


def sent(order, letter=None, replay=1):
    letter = TARGETS.cleared(letter or letter_of(), order)
    return letter if isinstance(letter, Refusal) else replay_message(letter, replay)


def test_a_replay_to_another_queue_is_the_same_message_for_the_same_claim():
    moved, plain = sent(ReplayOrder(to_queue="other")), sent(AS_IT_IS)
    assert (moved.queue, moved.routing_key, moved.headers[names.QUEUE]) == ("other",) * 3
    assert {**moved.headers, names.QUEUE: ""} == {**plain.headers, names.QUEUE: ""}
    assert moved.body == plain.body


def test_another_handler_gets_the_event_under_the_task_id_of_its_own_claim():
    message = sent(ReplayOrder(to_handler="orders.new"))
    assert (message.task, message.queue) == ("orders.new", "new")
    assert message.headers[names.EVENT_ID] == "e1"
    assert message.headers["id"] != "task-e1"
    assert message.headers[names.ORIGINAL_MESSAGE_ID] == "task-e1"
    assert message.headers["id"] == sent(ReplayOrder(to_handler="orders.new")).headers["id"]


def test_a_handler_that_was_renamed_can_take_what_its_old_name_failed_at():
    letter = letter_of(message=message_of(task="orders.old"))
    assert "no handler is registered as 'orders.old'" in sent(AS_IT_IS, letter)
    assert sent(ReplayOrder(to_handler="orders.new"), letter).task == "orders.new"


@pytest.mark.parametrize(
    ("order", "said"),
    [
        (ReplayOrder(to_handler="os.system"), "no handler is registered as 'os.system'"),
        (ReplayOrder(to_queue="theirs"), "the app knows no queue 'theirs'"),
    ],
)
def test_only_registered_handlers_and_known_queues_are_targets(order, said):
    assert said in sent(order)


def test_an_event_that_only_its_task_id_names_keeps_that_name_under_another_handler():
    message = message_of()
    bare = letter_of(message=message_of())
    headers = {k: v for k, v in message.headers.items() if k != names.EVENT_ID}
    object.__setattr__(bare.message, "headers", headers)
    assert sent(ReplayOrder(to_handler="orders.new"), bare).headers[names.EVENT_ID] == "task-e1"


@pytest.mark.parametrize("verb", ["publish", "after publish"])
def test_whoever_sends_a_replay_that_was_begun_sends_it_where_it_was_to_go(verb):
    world = World()
    world.replayer.targets.queues.add("other")
    world.queue.send(letter_of())
    world.worker.step()
    world.publisher.fail[verb] = Killed()
    found = world.ledger.open(world.entry.id)
    with pytest.raises(Killed):
        world.replayer.replay(
            found.entry, found.failure, by="me", order=ReplayOrder(to_queue="other")
        )
    world.publisher.fail.clear()
    world.clock.sleep(LEASE + timedelta(seconds=1))
    world.worker.step()
    assert {message.queue for message in world.publisher.sent} == {"other"}
    assert world.entry.status is Status.RETRYING
    assert "to queue other" in world.ledger.open(world.entry.id).history[-2].detail


# -- the sequence that a command expects ---------------------------------------------------------

COMMAND = task_of("player", "Pay")
COMMANDS = replace(TARGETS, tasks={*TARGETS.tasks, COMMAND})
FRESH = ReplayOrder(sequence=Expectation.FRESH_SEQUENCE)


def a_command(**headers):
    return letter_of(message=message_of(task=COMMAND, **headers))


def command_sent(order, letter):
    cleared = COMMANDS.cleared(letter, order)
    return cleared if isinstance(cleared, Refusal) else replay_message(cleared, 1)


def test_a_command_is_sent_as_it_is_unless_a_person_says_otherwise():
    assert command_sent(AS_IT_IS, a_command(**{names.SEQUENCE: 3})).headers[names.SEQUENCE] == 3


def test_a_fresh_sequence_drops_what_the_command_expects_and_nothing_else():
    letter = a_command(**{names.SEQUENCE: 3})
    fresh, plain = command_sent(FRESH, letter), command_sent(AS_IT_IS, letter)
    assert plain.headers == {**fresh.headers, names.SEQUENCE: 3}
    assert replace(plain, headers={}) == replace(fresh, headers={})


def test_a_command_that_expects_nothing_is_sent_all_the_same():
    assert command_sent(FRESH, a_command()).headers == command_sent(AS_IT_IS, a_command()).headers


def test_only_of_a_command_is_a_sequence_dropped():
    event = letter_of(message=message_of(**{names.SEQUENCE: 3}))
    said = "only a command expects a sequence, and 'orders.sync' is none: replay it as it is"
    assert command_sent(FRESH, event) == said
    assert COMMANDS.problem(event, FRESH) == said


def test_a_command_and_its_new_handler_are_told_apart():
    away = replace(FRESH, to_handler="orders.new")
    assert "'orders.new' is none" in command_sent(away, a_command(**{names.SEQUENCE: 3}))


def test_what_a_newer_release_wants_of_a_sequence_is_not_sent_in_another_way():
    newer = ReplayOrder(sequence=read_word(Expectation, "at_seven"))
    refusal = command_sent(newer, a_command(**{names.SEQUENCE: 3}))
    assert refusal == "this release does not know how to send it 'at_seven'"


def test_an_edit_that_is_sent_again_keeps_how_this_replay_is_to_be_sent():
    last = ReplayOrder(letter=letter_of(), before=letter_of(), said="/total")
    assert continued(FRESH, last) == replace(
        FRESH, letter=letter_of(), before=letter_of(), said="as before: /total"
    )


@pytest.mark.parametrize("verb", ["publish", "after publish"])
def test_whoever_sends_a_replay_that_was_begun_sends_it_with_a_fresh_sequence(verb):
    world = World()
    world.replayer.targets.tasks.add(COMMAND)
    world.queue.send(a_command(**{names.SEQUENCE: 3}))
    world.worker.step()
    world.publisher.fail[verb] = Killed()
    found = world.ledger.open(world.entry.id)
    with pytest.raises(Killed):
        world.replayer.replay(found.entry, found.failure, by="me", order=FRESH)
    world.publisher.fail.clear()
    world.clock.sleep(LEASE + timedelta(seconds=1))
    world.worker.step()
    assert world.publisher.sent
    assert all(names.SEQUENCE not in message.headers for message in world.publisher.sent)
    assert "with a fresh sequence" in world.ledger.open(world.entry.id).history[-2].detail
