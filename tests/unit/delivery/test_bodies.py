"""A message that has only a claim check: its body is fetched after the claim, once it may run."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.adapters.memory.lanes import MemoryLanes
from angzarr.dead_letters.letter import Reason
from angzarr.delivery.batch import Batch, BatchCall, BatchItem
from angzarr.delivery.batch_executor import BatchExecutor
from angzarr.delivery.delivery import DeadLettered, Duplicate, Handled, Parked, Postponed, Retried
from angzarr.errors import GivenBack, GiveUp, PayloadStoreUnavailable, RetryLater
from angzarr.events import headers as names
from angzarr.events.event import digest
from angzarr.ordering.lane import Order
from angzarr.payloads.claim_check import ARGUMENT, HEADER, ClaimCheck, check_in, write_check
from angzarr.payloads.store import PayloadReference, StorageKind
from angzarr.resilience.backoff import Policy
from memory_payloads import MemoryPayloadStore

ONCE_MORE = Policy(
    name="twice", base=timedelta(seconds=1), max_delay=timedelta(seconds=9), max_attempts=2
)
LARGE = {"order": "o-1", "lines": ["line"] * 100}


class Store(MemoryPayloadStore):
    """A store that counts what is asked of it, and can be away for some calls."""

    def __init__(self):
        super().__init__()
        self.fetched, self.away = [], 0

    def fetch(self, reference):
        self.fetched.append(reference.uri)
        if self.away:
            self.away -= 1
            raise PayloadStoreUnavailable("the payload store is away")
        return super().fetch(reference)


@pytest.fixture
def world(make_world):
    made = make_world()
    made.payloads = Store()
    return made


def checked(world, data=LARGE, *, body=None, **headers):
    """Return a message whose body lies in the world's store."""
    whole = json.dumps([[data], {}, {"callbacks": None}]).encode() if body is None else body
    reference = world.payloads.put(whole)
    check = ClaimCheck(reference=reference, digest=digest([[data], {}]))
    return stub_of(world, check, **headers)


def stub_of(world, check, **headers):
    message = world.message(**{HEADER: write_check(check)}, **headers)
    return replace(message, body=json.dumps([[], {ARGUMENT: "there"}, {}]).encode())


def test_the_handler_gets_the_body_and_the_event_its_data(world):
    seen = []
    world.handler(lambda data, context: seen.append((data, context.event.data)))
    assert isinstance(world.take(checked(world)), Handled)
    assert seen == [(LARGE, LARGE)]
    [(token, opened)] = world.opened
    assert (token, opened.args, opened.embed) == ("t1", [LARGE], {"callbacks": None})


def test_a_duplicate_is_told_without_a_fetch(world):
    world.handler(lambda _data, _context: 7)
    message = checked(world)
    world.take(message)
    assert world.take(message) == Duplicate(value=7)
    assert len(world.payloads.fetched) == 1


def test_the_same_body_is_one_event_whether_it_was_stored_or_sent(world):
    world.handler(lambda _data, _context: 7)
    world.take(world.message(data=LARGE))
    assert isinstance(world.take(checked(world)), Duplicate)


def test_another_body_under_its_id_is_a_conflict_and_is_not_fetched(world):
    world.handler(lambda _data, _context: 7)
    world.take(world.message(data=LARGE))
    outcome = world.take(checked(world, data="another"))
    assert isinstance(outcome, DeadLettered)
    assert outcome.letter.reason is Reason.CONFLICT
    assert world.payloads.fetched == []


def test_a_store_that_is_away_holds_the_event_and_uses_no_attempt(world):
    runs = []
    world.handler(lambda _data, context: runs.append(context.attempt))
    world.payloads.away = 12  # more often than what no waiting helps with is tried
    assert isinstance(world.take(checked(world)), Handled)
    assert runs == [1]
    assert len(world.payloads.fetched) == 13


def test_a_worker_that_stops_while_the_store_is_away_gives_the_message_back(world):
    world.handler(lambda _data, _context: None)
    world.payloads.away = 10**6
    message = checked(world)
    world.clock.sleep = lambda _span: setattr(world, "stop", True)
    with pytest.raises(GivenBack):
        world.take(message)
    assert world.journal.entries == ["release"], "its start is not counted"
    world.payloads.away, world.stop = 0, False
    world.clock.sleep = lambda _span: None
    assert isinstance(world.take(message), Handled)


def test_a_retry_sends_the_reference_on_and_stores_nothing_again(world):
    world.handler(raising(ConnectionResetError("gone")), policy=ONCE_MORE)
    message = checked(world)
    before = dict(world.payloads.payloads)
    assert isinstance(world.take(message), Retried)
    copy = world.last_copy()
    assert (copy.body, copy.headers[HEADER]) == (message.body, message.headers[HEADER])
    assert world.payloads.payloads == before
    outcome = world.take(copy)
    assert isinstance(outcome, DeadLettered)
    assert outcome.letter.attempts == 2


def test_a_retry_with_other_arguments_leaves_the_reference_behind(world):
    edited = json.dumps([["edited"], {}, {}]).encode()
    world.handler(raising(RetryLater(timedelta(seconds=1), body=edited)))
    world.take(checked(world))
    copy = world.last_copy()
    assert copy.body == edited
    assert HEADER not in copy.headers


def raising(error):
    def call(_data, _context):
        raise error

    return call


def test_a_letter_has_the_same_reference_and_no_body(world):
    world.handler(raising(GiveUp("negative total")))
    message = checked(world)
    letter = world.take(message).letter
    assert letter.payload == check_in(message.headers).reference
    assert (letter.message.body, letter.event.data) == (b"", None)
    assert HEADER not in letter.message.headers, "a replay with the body would be read as another"
    assert letter.reason is Reason.REFUSED


def test_a_letter_that_is_redacted_has_the_body_itself(world):
    world.keeps = True
    world.handler(raising(GiveUp("negative total")))
    letter = world.take(checked(world)).letter
    assert letter.payload is None
    assert json.loads(letter.message.body)[0] == [LARGE]
    assert letter.event.data == LARGE
    assert HEADER not in letter.message.headers


@pytest.mark.parametrize(
    ("harm", "error", "sentence"),
    [
        (lambda world: world.payloads.payloads.clear(), "PayloadGone", "is gone"),
        (
            lambda world: world.payloads.payloads.update(
                dict.fromkeys(world.payloads.payloads, b"[]")
            ),
            "PayloadCorrupt",
            "is corrupt",
        ),
    ],
)
def test_a_body_that_can_never_be_had_is_a_letter_with_its_place(world, harm, error, sentence):
    ran = []
    world.handler(lambda data, _context: ran.append(data))
    message = checked(world)
    harm(world)
    outcome = world.take(message)
    assert isinstance(outcome, DeadLettered)
    letter = outcome.letter
    assert letter.reason is Reason.UNDELIVERABLE
    assert letter.error_type == f"angzarr.errors.{error}"
    assert letter.lacks_payload
    assert sentence in letter.explanation
    assert letter.error_code == "PAYLOAD"
    assert ran == []
    assert world.journal.entries[-1] == "fail", "its claim ends with its letter"


def test_a_worker_without_a_store_says_what_is_missing(world):
    world.handler(lambda _data, _context: None)
    message = checked(world)
    world.payloads = None
    letter = world.take(message).letter
    assert "this app has no payloads.url: set it" in letter.explanation
    assert letter.payload is not None


@pytest.mark.parametrize(
    ("body", "sentence"),
    [(b"[[1], {}", "cannot be read"), (b"\xff", "cannot be read"), (b"7", "cannot be read")],
)
def test_a_body_that_celery_could_not_read_is_a_letter(world, body, sentence):
    world.handler(lambda _data, _context: None)
    letter = world.take(checked(world, body=body)).letter
    assert letter.reason is Reason.UNDELIVERABLE
    assert sentence in letter.explanation


def test_a_body_of_too_many_bytes_is_not_fetched(world):
    world.most_unpacked = 50
    world.handler(lambda _data, _context: None)
    letter = world.take(checked(world)).letter
    assert "raise message.most_unpacked" in letter.explanation
    assert world.payloads.fetched == []


def test_a_body_that_kills_its_reader_ends_as_poison_unread(world):
    world.handler(lambda _data, _context: None)
    message = checked(world)
    world.died(3, message)
    world.payloads.fetched.clear()
    outcome = world.take(message)
    assert isinstance(outcome, DeadLettered)
    assert outcome.letter.reason is Reason.POISON
    assert outcome.letter.payload is not None
    assert world.payloads.fetched == []


def test_an_event_that_is_postponed_for_a_rival_is_not_fetched(world):
    world.handler(lambda _data, _context: None)
    message = checked(world)
    world.store.claim([world.delivery(message, owner="w1").claim])
    assert isinstance(world.take(message), Postponed)
    assert world.payloads.fetched == []


def test_a_person_who_skips_it_needs_no_body(world):
    world.handler(lambda _data, _context: None)
    message = checked(world, **{names.SKIP: "known"})
    world.payloads.payloads.clear()
    world.take(message)
    assert world.payloads.fetched == []


HOSTILE_URIS = st.one_of(
    st.sampled_from(
        [
            "file:///etc/passwd", "s3://another-bucket/x", "memory:../../etc/passwd", "gs://b/x",
            "http://169.254.169.254/latest", "memory:" + "0" * 64, "\x00", "..",
        ]
    ),
    st.text(min_size=1, max_size=60),
)  # fmt: skip


@given(
    uri=HOSTILE_URIS,
    sha256=st.sampled_from(["0" * 64, "ab" * 32]),
    size=st.sampled_from([0, 1, 1000, 2**20, 2**20 + 1, 2**53]),
    encoding=st.sampled_from(["", "zstd", "gzip"]),
    kind=st.sampled_from(StorageKind),
)
def test_a_hostile_reference_is_a_letter_and_nothing_outside_the_store_is_read(
    make_world, uri, sha256, size, encoding, kind
):
    world = make_world()
    ran = []
    world.handler(lambda data, _context: ran.append(data))
    world.payloads.put(b"[[1], {}, {}]")
    reference = PayloadReference(
        kind=kind, uri=uri, sha256=sha256, size=size, encoding=encoding,
        unpacked_size=size, unpacked_sha256=sha256 if encoding else "",
    )  # fmt: skip
    outcome = world.take(stub_of(world, ClaimCheck(reference=reference, digest="0" * 64)))
    assert isinstance(outcome, DeadLettered)
    assert outcome.letter.reason is Reason.UNDELIVERABLE
    assert "\n" not in outcome.letter.explanation
    assert ran == []


@given(said=st.one_of(st.text(max_size=200), st.integers(), st.lists(st.integers())))
def test_a_header_that_is_no_claim_check_is_a_letter(make_world, said):
    world = make_world()
    world.handler(lambda _data, _context: None)
    outcome = world.take(
        replace(world.message(), headers={**world.message().headers, HEADER: said})
    )
    assert isinstance(outcome, DeadLettered)
    assert "does not say where its body lies" in outcome.letter.explanation


def test_each_event_of_a_batch_gets_its_body_and_one_that_is_gone_ends_alone(world):
    calls = []
    call = BatchCall(lambda events: calls.append(list(events)), takes_context=False)
    world.handler(
        None,
        bind=lambda delivery, context: BatchItem(call, delivery.args[0], context),
        batch=Batch(size=10, wait=1),
    )
    gone = checked(world, "gone", event_id="gone")
    world.payloads.payloads.clear()
    messages = [
        checked(world, LARGE, event_id="large"), world.message("small", event_id="small"), gone,
        checked(world, "too", event_id="too"),
    ]  # fmt: skip
    ends = BatchExecutor(world.road()).take([world.delivery(one) for one in messages])
    kinds = [type(one.result()) for one in ends]
    assert kinds == [Handled, Handled, DeadLettered, Handled]
    assert calls == [[LARGE, "small", "too"]]


def test_an_event_that_comes_early_waits_in_its_lane_as_a_reference(world):
    ran = []
    world.lanes = MemoryLanes(world.clock)
    order = Order(domains=frozenset({"order"}), types=frozenset({"Placed"}), moves=False)
    world.handler(lambda data, _context: ran.append(data), order=order)

    def ordered(data, n):
        place = {
            names.EVENT_TYPE: "Placed", names.DOMAIN: "order", names.ROOT: "r1", names.SEQUENCE: n,
        }  # fmt: skip
        return checked(world, data, event_id=f"e{n}", **place)

    assert isinstance(world.take(ordered("second", 1)), Parked)
    assert world.payloads.fetched == []
    world.payloads.away = 2  # amid a lane that others wait for
    assert isinstance(world.take(ordered("first", 0)), Handled)
    copy = world.last_copy()
    assert check_in(copy.headers) is not None
    assert isinstance(world.take(copy), Handled)
    assert ran == ["first", "second"]
