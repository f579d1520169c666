"""Letters that are too large for their queue leave their body in a store, confirmed there first."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.dead_letters import a_letter

from angzarr.adapters.memory.payload_holders import MemoryPayloadHolders
from angzarr.dead_letters.codec import Form, decode, encode
from angzarr.dead_letters.offloading_queue import (
    OffloadingQueue,
    has_body,
    without_body,
)
from angzarr.dead_letters.queue import (
    ONLY_LETTERS,
    RawLetter,
    Receipt,
    TooLarge,
    put_one,
)
from angzarr.errors import (
    DeadLetterQueueUnavailable,
    LetterTooLarge,
    PayloadStoreUnavailable,
    StoreUnavailable,
)
from angzarr.payloads.collector import PayloadState
from angzarr.payloads.holders import BodyRegistration, letter_holder
from angzarr.payloads.store import plain_name
from memory_payloads import MemoryPayloadStore

LIMIT = 4_000


class LimitedQueue:
    """A queue that takes letters of up to `limit` bytes and notes what it was asked."""

    def __init__(self, limit=LIMIT):
        self.limit = limit
        self.asked, self.taken = [], []
        self.refuse = {}
        self.away_after = None
        self.closed = False

    def put(self, letters):
        self.asked.append(list(letters))
        if self.away_after is not None and len(self.asked) > self.away_after:
            raise DeadLetterQueueUnavailable("the queue is away")
        answers = [self._answer(letter) for letter in letters]
        self.taken += [one for one, why in zip(letters, answers, strict=True) if why is None]
        return answers

    def _answer(self, letter):
        if len(encode(letter).body) > self.limit:
            return TooLarge(f"at most {self.limit} bytes")
        return self.refuse.get(letter.id)

    def receive(self, domains, *, limit, wait):
        return [Receipt(domain=domains[0], letter=None, raw=b"", content_type="")]

    def done(self, receipts):
        self.taken.clear()

    def close(self):
        self.closed = True


class Store(MemoryPayloadStore):
    def __init__(self):
        super().__init__()
        self.puts, self.away, self.closed = 0, False, False

    def put(self, payload, name=None):
        self.puts += 1
        if self.away:
            raise PayloadStoreUnavailable("the store is away")
        return super().put(payload, name)

    def close(self):
        self.closed = True


class World:
    def __init__(self, over=None):
        self.queue, self.store = LimitedQueue(), Store()
        self.offloading = OffloadingQueue(self.queue, self.store, over=over)
        self.put = self.offloading.put


@pytest.fixture
def world():
    return World()


def large(number=0, size=LIMIT, **changes):
    letter = a_letter("order", number, **changes)
    body = b'[["' + b"x" * size + b'"], {}, {}]'
    return replace(letter, message=replace(letter.message, body=body))


def test_a_letter_that_is_too_large_is_put_again_with_its_body_in_the_store(world):
    letter = large()
    assert world.put([letter]) == [None]
    [taken] = world.queue.taken
    assert taken == without_body(letter, taken.payload)
    assert (taken.message.body, taken.event.data) == (b"", None)
    assert taken.event.root == letter.event.root
    assert world.store.fetch(taken.payload) == letter.message.body


def test_bytes_that_are_no_letter_go_as_they_are_or_are_refused_and_never_to_the_store(world):
    small = RawLetter(domain="order", raw=b"x", content_type="")
    big = RawLetter(domain="order", raw=b"x" * (LIMIT + 1), content_type="")
    assert world.offloading.put_raw([small]) == [ONLY_LETTERS]
    world.queue.put_raw = world.queue.put
    fits, too_large = world.offloading.put_raw([small, big])
    assert fits is None
    assert isinstance(too_large, TooLarge)
    assert (world.queue.taken, world.store.puts) == ([small], 0)


def test_letters_that_fit_are_put_once_and_cost_the_store_nothing(world, monkeypatch):
    encoded = []
    monkeypatch.setattr("angzarr.dead_letters.codec.to_wire", encoded.append)
    world.queue._answer = lambda _letter: None
    letters = [a_letter("order", number) for number in range(3)]
    assert world.put(letters) == [None] * 3
    assert world.queue.asked == [letters]
    assert (world.store.puts, encoded) == (0, [])


def test_only_what_was_refused_is_put_again_and_answers_keep_their_order(world):
    world.queue.refuse = {"order-2": "the disk is full"}
    letters = [a_letter("order", 0), large(1), a_letter("order", 2), large(3)]
    assert world.put(letters) == [None, None, "the disk is full", None]
    first, second = world.queue.asked
    assert first == letters
    assert [letter.id for letter in second] == ["order-1", "order-3"]
    assert [letter.id for letter in world.queue.taken] == ["order-0", "order-1", "order-3"]


def test_a_body_over_the_threshold_is_stored_before_any_queue_sees_it():
    world = World(over=100)
    small, big = a_letter("order"), large(1, size=100)
    assert world.put([small, big]) == [None, None]
    [asked] = world.queue.asked
    assert asked[0] == small
    assert world.store.fetch(asked[1].payload) == big.message.body


def test_a_letter_that_is_too_large_without_its_body_too_is_refused_for_good(world):
    letter = large(metadata={"large": "x" * LIMIT})
    [why] = world.put([letter])
    assert isinstance(why, TooLarge)
    with pytest.raises(LetterTooLarge):
        put_one(world.offloading, letter)


@pytest.mark.parametrize(
    "letter",
    [
        large(envelope=b"\x0a\x00"),
        without_body(large(metadata={"large": "x" * LIMIT}), MemoryPayloadStore().put(b"x")),
        replace(
            a_letter("order", metadata={"large": "x" * LIMIT}),
            message=replace(a_letter("order").message, body=b""),
        ),
    ],
    ids=["of others", "offloaded already", "without a body"],
)
def test_a_letter_without_a_body_of_its_own_is_left_as_it_is(world, letter):
    world.queue._answer = lambda _letter: TooLarge("too large")
    assert not has_body(letter)
    assert world.put([letter]) == ["too large"]
    assert (world.queue.asked, world.store.puts) == ([[letter]], 0)


def test_while_the_store_is_away_the_letter_is_refused_and_not_for_good(world):
    world.store.away = True
    letters = [large(0), a_letter("order", 1), large(2)]
    answers = world.put(letters)
    assert answers == ["at most 4000 bytes; the store is away", None, answers[0]]
    assert not isinstance(answers[0], TooLarge)
    assert world.store.puts == 1, "it is asked once"
    with pytest.raises(DeadLetterQueueUnavailable):
        put_one(world.offloading, letters[0])
    world.store.away = False
    assert world.put([letters[0], letters[2]]) == [None, None]


def test_while_the_store_is_away_a_letter_over_the_threshold_is_put_whole():
    world = World(over=100)
    world.store.away = True
    fits, does_not = large(0, size=200), large(1)
    assert world.put([fits, does_not]) == [None, "at most 4000 bytes; the store is away"]
    assert world.queue.taken == [fits]
    assert world.store.puts == 1


def test_a_store_that_fails_half_way_holds_up_only_the_letters_behind(world):
    put = world.store.put

    def put_twice(payload):
        world.store.away = world.store.puts == 2
        return put(payload)

    world.store.put = put_twice
    answers = world.put([large(number, size=LIMIT + number) for number in range(4)])
    assert answers[:2] == [None, None]
    assert answers[2] == answers[3] == "at most 4000 bytes; the store is away"


def test_a_queue_that_goes_away_between_the_two_puts_refuses_only_the_second(world):
    world.queue.away_after = 1
    assert world.put([a_letter("order"), large(1)]) == [None, "the queue is away"]


def test_a_queue_that_is_away_is_told_as_such_and_the_store_is_not_asked(world):
    world.queue.away_after = 0
    with pytest.raises(DeadLetterQueueUnavailable):
        world.put([large()])
    assert world.store.puts == 0


def test_nothing_is_named_that_the_store_has_not_confirmed(world):
    stored = []
    put, queue_put = world.store.put, world.queue.put
    world.store.put = lambda payload, name=None: stored.append(payload) or put(payload, name)

    def check(letters):
        for letter in letters:
            if letter.payload is not None:
                assert plain_name(letter.payload.sha256) in world.store.payloads
        return queue_put(letters)

    world.queue.put = check
    world.put([large(0), large(1, size=LIMIT + 1)])
    assert len(stored) == 2


def test_the_other_verbs_are_those_of_the_queue(world):
    [receipt] = world.offloading.receive(["order"], limit=1, wait=timedelta(0))
    assert receipt.domain == "order"
    world.put([a_letter("order")])
    world.offloading.done([receipt])
    assert world.queue.taken == []
    world.offloading.close()
    assert world.queue.closed
    assert world.store.closed


@given(st.binary(min_size=1), st.sampled_from(Form))
def test_an_offloaded_letter_comes_back_equal_and_its_body_too(body, form):
    letter = a_letter("order")
    letter = replace(letter, message=replace(letter.message, body=body))
    store = MemoryPayloadStore()
    offloaded = without_body(letter, store.put(body))
    read = decode(*encode(offloaded, form))
    assert read == offloaded
    assert store.fetch(read.payload) == body


def test_the_letter_shrinks_by_all_that_its_body_took():
    offloaded = without_body(large(size=1_000_000), MemoryPayloadStore().put(b"x"))
    for form in Form:
        assert len(encode(offloaded, form).body) < 2_500


def test_a_body_that_is_stored_is_held_by_its_letter_before_it_is_there():
    holders, store = MemoryPayloadHolders(), Store()
    offloading = OffloadingQueue(
        LimitedQueue(), store, registration=BodyRegistration(lambda: holders)
    )
    assert offloading.put([large()]) == [None]
    [found] = holders.find(PayloadState.HELD, timedelta(0), limit=9)
    [uri] = [one.uri for one in store.find_all()]
    assert (found.uri, found.holder) == (uri, letter_holder(large().id, large().sent_to_dlq_at))


def test_a_body_that_cannot_be_registered_is_stored_all_the_same(caplog):
    def away():
        raise StoreUnavailable("redis is away")

    store = Store()
    offloading = OffloadingQueue(LimitedQueue(), store, registration=BodyRegistration(away))
    assert offloading.put([large()]) == [None]
    [name] = store.payloads
    assert name == plain_name(name.replace("/", ""))
    assert "payload_not_registered: its body is kept for ever: redis is away" in caplog.text
