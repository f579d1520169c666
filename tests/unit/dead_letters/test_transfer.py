from __future__ import annotations

import contextlib
import uuid
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.dead_letters import a_letter, letters_of

from angzarr.adapters.memory.dead_letters import MemoryDeadLetterQueue
from angzarr.dead_letters.codec import Encoded
from angzarr.dead_letters.names import queue_name
from angzarr.dead_letters.transfer import (
    MOST_KEPT,
    MoveCourse,
    Transfer,
    carry_into,
    name_of,
    waiting,
)
from angzarr.errors import DeadLetterQueueUnavailable
from hand_clock import HandClock

DOMAINS = ["order", "billing"]


class Killed(BaseException):
    """The process ends here: nothing after it runs, what was in hand comes back."""


class Away:
    """A dead-letter queue in memory whose calls fail when told; waiting moves the clock."""

    def __init__(self, name: str, clock: HandClock) -> None:
        self.name = name
        self.inner = MemoryDeadLetterQueue(name)
        self.clock = clock
        self.calls: list[str] = []
        self.fail_at: dict[int, BaseException] = {}
        self.refuse: dict[str, str] = {}

    def _call(self, verb: str) -> None:
        self.calls.append(verb)
        if error := self.fail_at.pop(len(self.calls), None):
            raise error

    def put(self, letters):
        self._call("put")
        taken = [one for one in letters if one.id not in self.refuse]
        self.inner.put(taken)
        self._call("put, not told")
        return [self.refuse.get(one.id) for one in letters]

    def put_raw(self, letters):
        return self.inner.put_raw(letters)

    def receive(self, domains, *, limit, wait):
        self._call("receive")
        taken = self.inner.receive(domains, limit=limit, wait=timedelta(0))
        if not taken:
            self.clock.sleep(wait)
        return taken

    def done(self, receipts):
        self._call("done, not made")
        self.inner.done(receipts)
        self._call("done, not told")

    def waiting(self, domains):
        return self.inner.waiting(domains)

    def close(self):
        self.inner.close()


class Mute:
    """A queue that neither counts nor carries bytes that are no letters."""

    def __init__(self, queue) -> None:
        self.put, self.receive, self.done = queue.put, queue.receive, queue.done


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def make(clock):
    name = uuid.uuid4().hex
    return lambda role: Away(f"{name}-{role}", clock)


@pytest.fixture
def source(make):
    return make("source")


@pytest.fixture
def target(make):
    return make("target")


def transfer(source, target, clock, stop=lambda: False, **course):
    given = MoveCourse(**({"domains": DOMAINS} | course))
    return Transfer(source, carry_into(target), given, clock=clock, stop=stop)


def ids_in(queue) -> Counter[str]:
    """Return what waits in *queue* once nobody has anything in hand."""
    queue.inner.close()
    reader = MemoryDeadLetterQueue(queue.name)
    found = reader.receive(DOMAINS, limit=10_000, wait=timedelta(0))
    reader.close()
    return Counter(name_of(one) for one in found)


def put_raw(queue, domain, raw, content_type="application/json"):
    shared = queue.inner._channel
    with shared.changed:
        shared.queue(queue_name(domain)).append(Encoded(raw, content_type))


def test_everything_is_moved_once_and_in_order(source, target, clock):
    letters = letters_of("order", 250)
    source.put(letters)
    account = transfer(source, target, clock).run()
    moved = target.inner.receive(["order"], limit=999, wait=timedelta(0))
    assert [one.letter for one in moved] == letters
    assert (account.carried, account.kept) == (Counter(order=250), {})
    assert not ids_in(source)


def test_only_the_domains_named_are_moved(source, target, clock):
    source.put([a_letter("order"), a_letter("billing"), a_letter("other")])
    account = transfer(source, target, clock).run()
    assert account.carried == Counter(order=1, billing=1)
    assert source.inner.waiting(["other"]) == {"other": 1}


def test_a_limit_is_kept_to_the_letter(source, target, clock):
    source.put(letters_of("order", 250))
    assert transfer(source, target, clock, limit=130).run().taken == 130
    assert ids_in(source).total() == 120
    assert ids_in(target).total() == 130


@pytest.mark.parametrize(("rate", "least"), [(10, 10), (0.5, 200), (1000, 0.1)])
def test_a_rate_is_never_exceeded(source, target, clock, rate, least):
    source.put(letters_of("order", 100))
    began = clock.now()
    seen = []
    moving = transfer(source, target, clock, rate=rate, limit=100)
    moving._tell = lambda account: seen.append((clock.now() - began, account.taken))
    moving.run()
    assert clock.now() - began >= timedelta(seconds=least)
    for passed, taken in seen:  # no more than a batch of 10 s ahead
        assert taken <= passed.total_seconds() * rate + max(1, min(100, rate * 10))


def test_what_is_refused_stays_and_is_told_and_the_rest_goes_on(source, target, clock):
    source.put(letters_of("order", 5))
    target.refuse = {"order-2": "too large"}
    account = transfer(source, target, clock).run()
    assert account.kept == {"order-2": "too large"}
    assert ids_in(target) == Counter(f"order-{n}" for n in (0, 1, 3, 4))
    assert ids_in(source) == Counter(["order-2"])


def test_a_refused_letter_that_comes_again_is_not_put_for_ever(source, target, clock):
    source.put(letters_of("order", 2))
    target.refuse = {"order-0": "full", "order-1": "full"}
    comes_again = source.inner.receive

    def receive(domains, *, limit, wait):  # as where a lease ends
        source.inner.close()
        return comes_again(domains, limit=limit, wait=wait)

    source.inner.receive = receive
    source.waiting = lambda _domains: {}
    assert len(transfer(source, target, clock).run().kept) == 2
    assert target.calls.count("put") == 1


def test_a_target_that_refuses_everything_ends_the_transfer(source, target, clock):
    source.put(letters_of("order", MOST_KEPT + 500))
    target.refuse = {f"order-{n}": "full" for n in range(MOST_KEPT + 500)}
    assert len(transfer(source, target, clock).run().kept) == MOST_KEPT
    assert ids_in(source).total() == MOST_KEPT + 500


def test_unreadable_bytes_move_as_they_are(source, target, clock):
    put_raw(source, "order", b"no letter \xff", "text/odd")
    source.put([a_letter("order")])
    account = transfer(source, target, clock).run()
    assert (account.carried.total(), account.unreadable) == (2, 1)
    moved = target.inner.receive(["order"], limit=9, wait=timedelta(0))
    assert (b"no letter \xff", "text/odd") in [(one.raw, one.content_type) for one in moved]


def test_unreadable_bytes_stay_where_a_target_takes_nothing_but_letters(source, target, clock):
    put_raw(source, "order", b"no letter")
    source.put([a_letter("order")])
    account = transfer(source, Mute(target), clock).run()
    [why] = account.kept.values()
    assert "takes nothing but letters" in why
    assert ids_in(target) == Counter(["order-0"])
    assert ids_in(source).total() == 1


def test_what_a_source_holds_and_cannot_give_out_is_told_as_kept(source, target, clock):
    source.put([a_letter("order")])
    source.damaged = lambda: {"file-7": "it was cut"}
    account = transfer(source, target, clock).run()
    assert account.kept == {"file-7": "it was cut"}
    assert account.carried == Counter(order=1)


def test_a_look_gives_everything_back(source, target, clock):
    source.put([*letters_of("order", 120), a_letter("billing")])
    put_raw(source, "order", b"no letter")
    account = Transfer(
        source,
        lambda receipts: [None] * len(receipts),
        MoveCourse(domains=DOMAINS, take_away=False),
        clock=clock,
        stop=lambda: False,
    ).run()
    assert account.carried == Counter(order=121, billing=1)
    assert account.unreadable == 1
    assert ids_in(source).total() == 122


def test_a_look_counts_no_letter_twice_and_ends_where_letters_come_again(source, target, clock):
    source.put(letters_of("order", 3))
    comes_again = source.inner.receive

    def receive(domains, *, limit, wait):
        source.inner.close()
        return comes_again(domains, limit=limit, wait=wait)

    source.inner.receive = receive
    assert transfer(source, target, clock, take_away=False).run().carried.total() == 3


def test_it_waits_longer_for_letters_that_the_source_says_to_have(source, target, clock):
    began = clock.now()
    transfer(source, target, clock).run()
    at_once = clock.now() - began
    source.waiting = lambda _domains: {"order": 7}
    began = clock.now()
    account = transfer(source, target, clock).run()
    assert clock.now() - began > at_once * 5
    assert account.remaining == 7


def test_a_source_that_cannot_count_is_waited_for_and_remains_unknown(source, target, clock):
    source.put(letters_of("order", 3))
    assert waiting(Mute(source), DOMAINS) is None
    account = transfer(Mute(source), target, clock).run()
    assert (account.carried.total(), account.remaining) == (3, None)


def test_a_count_that_fails_is_no_count(source, clock):
    def away(_domains):
        raise DeadLetterQueueUnavailable("away")

    source.waiting = away
    assert waiting(source, DOMAINS) is None


def test_a_stop_ends_it_between_two_batches(source, target, clock):
    source.put(letters_of("order", 250))
    stopped: list[int] = []
    moving = transfer(source, target, clock, stop=lambda: bool(stopped))
    moving._tell = lambda _account: stopped.append(1)
    assert moving.run().taken == 100
    assert ids_in(source).total() == 150


def test_a_stop_is_seen_while_a_slow_rate_is_slept_off(source, target, clock):
    source.put(letters_of("order", 50))
    began = clock.now()
    stop = lambda: clock.now() - began > timedelta(seconds=2)  # noqa: E731
    transfer(source, target, clock, stop=stop, rate=0.1).run()
    assert clock.now() - began < timedelta(seconds=4)


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_queue_that_is_away_for_a_while_costs_nothing(source, target, clock, side):
    source.put(letters_of("order", 150))
    failing = {"source": source, "target": target}[side]
    failing.calls.clear()
    for number in (4, 5, 6):
        failing.fail_at[number] = DeadLetterQueueUnavailable("away")
    assert transfer(source, target, clock).run().carried.total() == 150
    assert ids_in(target).keys() == {f"order-{n}" for n in range(150)}
    assert not ids_in(source)


def test_a_queue_that_stays_away_is_told_and_nothing_is_lost(source, target, clock):
    source.put(letters_of("order", 150))
    for number in range(3, 20):
        target.fail_at[number] = DeadLetterQueueUnavailable("away")
    began = clock.now()
    with pytest.raises(DeadLetterQueueUnavailable):
        transfer(source, target, clock).run()
    assert timedelta(seconds=10) < clock.now() - began < timedelta(minutes=1)
    assert ids_in(source).total() == 50


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_queue_that_was_never_reached_is_told_at_once(source, target, clock, side):
    source.put(letters_of("order", 3))
    failing = {"source": source, "target": target}[side]
    failing.calls.clear()
    failing.fail_at[1] = DeadLetterQueueUnavailable("away")
    began = clock.now()
    with pytest.raises(DeadLetterQueueUnavailable):
        transfer(source, target, clock).run()
    assert clock.now() == began
    assert ids_in(source).total() == 3


class DroppedOnAway(Away):
    """Forgets what it handed out whenever it fails, as a connection that is lost."""

    def _call(self, verb):
        try:
            super()._call(verb)
        except DeadLetterQueueUnavailable:
            self.inner.close()
            raise


@given(
    count=st.integers(1, 12),
    faults=st.lists(
        st.tuples(
            st.sampled_from(["source", "target"]),
            st.integers(1, 9),
            st.sampled_from([Killed, DeadLetterQueueUnavailable]),
        ),
        max_size=6,
    ),
    refused=st.sets(st.integers(0, 11), max_size=3),
    batch=st.sampled_from([0.1, 0.5, 1000]),
)
def test_whatever_fails_wherever_no_letter_is_lost_and_none_is_in_neither_queue(
    count, faults, refused, batch
):
    clock = HandClock()
    name = uuid.uuid4().hex
    ends = {side: DroppedOnAway(f"{name}-{side}", clock) for side in ("source", "target")}
    letters = letters_of("order", count)
    ends["source"].put(letters)
    ends["target"].refuse = {f"order-{n}": "refused" for n in refused}
    everything = {one.id for one in letters}
    for side, call, error in [*faults, ("source", 10**6, Killed)]:
        ends[side].calls.clear()
        ends[side].fail_at = {call: error("told by a test")}
        with contextlib.suppress(Killed, DeadLetterQueueUnavailable):
            transfer(ends["source"], ends["target"], clock, rate=batch).run()
        there = {side: ids_in(one) for side, one in ends.items()}  # in hand comes back
        assert there["source"].keys() | there["target"].keys() == everything
    assert there["source"].keys() == everything & ends["target"].refuse.keys()
    assert there["target"].keys() == everything - ends["target"].refuse.keys()


def test_a_lease_that_ended_before_done_leaves_the_letter_in_both(source, target, clock):
    source.put([a_letter("order")])
    put = target.put

    def slow(letters):
        answers = put(letters)
        source.inner.close()  # the lease ends, the letter goes to somebody else
        target.put = put
        return answers

    target.put = slow
    transfer(source, target, clock).run()
    assert set(ids_in(target)) == {"order-0"}
    assert not ids_in(source)


def test_names_of_unreadable_letters_do_not_collide_with_those_of_others(source, clock):
    letter = replace(a_letter("order"), id="x")
    source.put([letter])
    put_raw(source, "order", b"x")
    names = [name_of(one) for one in source.inner.receive(DOMAINS, limit=9, wait=timedelta(0))]
    assert len(set(names)) == 2
