"""Which message comes first: priorities, the order of queues, fairness; as with kombu's own."""

from __future__ import annotations

import random
from itertools import groupby

import pytest
from kombu.utils.scheduling import round_robin_cycle
from tests.adapters.redis_sides import OURS, connect, consuming, each_side, publish


def names(unique_name: str, letters: str) -> dict[str, str]:
    """Return a queue's name for each letter; the names sort as the letters do."""
    return {letter: f"{unique_name}-{letter}" for letter in letters}


def fill(connection, queues, numbers, **properties):
    for letter, queue in queues.items():
        publish(connection, queue, [f"{letter}{n}" for n in numbers], **properties)


@each_side
@pytest.mark.parametrize("prefetch", [0, 1, 10, 1000])
def test_one_queue_keeps_its_order(redis_broker, unique_name, side, prefetch):
    with connect(redis_broker, side) as connection:
        publish(connection, unique_name, range(200))
        with consuming(connection, unique_name, prefetch=prefetch) as inbox:
            assert inbox.wait(200) == list(range(200))


@each_side
def test_each_priority_has_the_list_that_autoscalers_look_at(redis_broker, raw, unique_name, side):
    with connect(redis_broker, side) as connection:
        for priority in range(10):
            publish(connection, unique_name, [priority], priority=priority)
        lengths = {p: raw.llen(f"{unique_name}\x06\x16{p}") for p in (3, 6, 9)}
        assert raw.llen(unique_name) == 3
        assert lengths == {3: 3, 6: 3, 9: 1}
        with consuming(connection, unique_name) as inbox:
            assert inbox.wait(10) == list(range(10))


@each_side
def test_steps_and_separator_are_options(redis_broker, raw, unique_name, side):
    options = {"priority_steps": [0, 5], "sep": ":"}
    with connect(redis_broker, side, **options) as connection:
        for priority in (9, 5, 4, 0):
            publish(connection, unique_name, [priority], priority=priority)
        assert raw.llen(unique_name) == 2
        assert raw.llen(f"{unique_name}:5") == 2
        with consuming(connection, unique_name) as inbox:
            assert inbox.wait(4) == [4, 0, 9, 5]


@each_side
def test_a_more_urgent_message_overtakes_what_waits(redis_broker, unique_name, side):
    with connect(redis_broker, side) as connection:
        publish(connection, unique_name, range(5), priority=9)
        with consuming(connection, unique_name, prefetch=1) as inbox:
            inbox.wait(1)
            publish(connection, unique_name, ["urgent"], priority=0)
            # One more may have been fetched in the step that acknowledged the first.
            assert "urgent" in inbox.wait(3)
            assert [body for body in inbox.wait(6) if body != "urgent"] == list(range(5))


@each_side
@pytest.mark.parametrize("strategy", ["round_robin", "sorted", "priority"])
def test_urgency_comes_before_the_order_of_queues(redis_broker, unique_name, side, strategy):
    queues = names(unique_name, "abc")
    with connect(redis_broker, side, queue_order_strategy=strategy) as connection:
        for priority in (9, 3, 0):
            fill(connection, queues, [priority], priority=priority)
        with consuming(connection, *queues.values(), prefetch=4) as inbox:
            bodies = inbox.wait(9)
    assert [body[1:] for body in bodies] == ["0"] * 3 + ["3"] * 3 + ["9"] * 3


@each_side
@pytest.mark.parametrize("prefetch", [1, 4, 100])
@pytest.mark.parametrize(("strategy", "expected"), [("sorted", "abc"), ("priority", "cab")])
def test_one_queue_after_the_other(redis_broker, unique_name, side, strategy, expected, prefetch):
    queues = names(unique_name, "abc")
    with connect(redis_broker, side, queue_order_strategy=strategy) as connection:
        fill(connection, queues, range(5))
        order = [queues[letter] for letter in "cab"]
        with consuming(connection, *order, prefetch=prefetch) as inbox:
            bodies = inbox.wait(15)
    assert bodies == [f"{letter}{n}" for letter in expected for n in range(5)]


@each_side
@pytest.mark.parametrize("prefetch", [0, 1, 2, 100])
def test_queues_take_turns(redis_broker, unique_name, side, prefetch):
    queues = names(unique_name, "abc")
    with connect(redis_broker, side) as connection:
        fill(connection, queues, range(6))
        with consuming(connection, *queues.values(), prefetch=prefetch) as inbox:
            bodies = inbox.wait(18)
    for turn in range(6):
        assert sorted(bodies[turn * 3 : turn * 3 + 3]) == [f"{letter}{turn}" for letter in "abc"]


@each_side
@pytest.mark.parametrize("prefetch", [1, 10])
def test_a_busy_queue_does_not_starve_the_others(redis_broker, unique_name, side, prefetch):
    busy, quiet = names(unique_name, "z"), names(unique_name, "abcdefghi")
    with connect(redis_broker, side) as connection:
        fill(connection, busy, range(500))
        with consuming(connection, *busy.values(), *quiet.values(), prefetch=prefetch) as inbox:
            inbox.wait(20)
            fill(connection, quiet, range(5))
            bodies = inbox.wait(545)
    last_quiet = max(n for n, body in enumerate(bodies) if body[0] != "z")
    before = sum(body[0] == "z" for body in bodies[20:last_quiet])
    # A fair share is five turns; what was fetched before the others came is under way as well.
    assert before <= 5 + 2 * prefetch


def test_two_hundred_queues_are_all_served(redis_broker, unique_name):
    queues = [f"{unique_name}-{n}" for n in range(200)]
    with (
        connect(redis_broker, OURS) as connection,
        consuming(connection, *queues, prefetch=16) as inbox,
    ):
        inbox.turn()
        for queue in random.sample(queues, 200):
            publish(connection, queue, [queue])
        assert sorted(inbox.wait(200)) == sorted(queues)


class Reversed(round_robin_cycle):
    """An order of the user's own: the newest name first, whatever was served before."""

    def consume(self, n):
        return sorted(self.items[:n], reverse=True)

    def rotate(self, last_used):
        pass


@each_side
@pytest.mark.parametrize("prefetch", [1, 10])
def test_an_order_of_the_users_own_is_followed(redis_broker, unique_name, side, prefetch):
    queues = names(unique_name, "abc")
    strategy = f"{__name__}:Reversed"
    with connect(redis_broker, side, queue_order_strategy=strategy) as connection:
        fill(connection, queues, range(3))
        with consuming(connection, *queues.values(), prefetch=prefetch) as inbox:
            bodies = inbox.wait(9)
    assert [letter for letter, _ in groupby(bodies, lambda body: body[0])] == ["c", "b", "a"]
