"""What is stored before it is sent, what stands in its place, and what is sent as it is."""

from __future__ import annotations

import json
from datetime import timedelta
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.adapters.celery.publish.body_offloader import (
    BodyOffloader,
    safe_size,
)
from angzarr.adapters.celery.publish.offloading_producer import OffloadingProducer
from angzarr.adapters.celery.worker.stored_bodies import read_stored
from angzarr.adapters.memory.payload_holders import MemoryPayloadHolders
from angzarr.delivery.delivery import read
from angzarr.errors import PayloadStoreUnavailable, StoreUnavailable
from angzarr.events.event import Event, Message, digest
from angzarr.events.headers import HOP, PAYLOAD, REPLAY, to_headers
from angzarr.payloads.claim_check import ARGUMENT, HEADER, check_in
from angzarr.payloads.collector import PayloadState
from angzarr.payloads.holders import BodyRegistration, PayloadHold, holding, message_holder
from angzarr.resilience.idempotency import key_for
from angzarr.runtime.json_bounds import Bounds
from memory_payloads import MemoryPayloadStore

EMBED = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
BOUNDS = Bounds(nodes=100_000, depth=100)


class CountingStore(MemoryPayloadStore):
    def __init__(self):
        super().__init__()
        self.puts, self.away = 0, False

    def put(self, payload, name=None):
        if self.away:
            raise PayloadStoreUnavailable("the payload store is away")
        self.puts += 1
        return super().put(payload, name)


class Sent:
    """A channel that keeps what is published on it."""

    def __init__(self):
        self.messages = []

    def prepare_message(self, body, priority, content_type, content_encoding, headers, properties):
        return SimpleNamespace(body=body, content_type=content_type, headers=headers)

    def basic_publish(self, message, **_way):
        self.messages.append(message)


@pytest.fixture
def store():
    return CountingStore()


@pytest.fixture
def offloader(store):
    return BodyOffloader(store, 100, monotonic=lambda: 0.0)


def publish(offloader, data, *, headers=None, embed=EMBED, **options):
    channel = Sent()
    producer = OffloadingProducer(channel, auto_declare=False, offloader=offloader)
    headers = {"task": "t", "id": "1"} if headers is None else headers
    options = {"serializer": "json", **options}
    producer.publish(([data], {}, embed), headers=headers, routing_key="q", **options)
    return channel.messages[0]


def test_the_header_is_one_of_ours():
    assert HEADER == PAYLOAD


@given(st.text(max_size=300))
def test_what_is_sent_leads_back_to_what_was_given(data):
    store = CountingStore()
    sent = publish(BodyOffloader(store, 100), data)
    check = check_in(sent.headers)
    whole = json.dumps([[data], {}, EMBED])
    assert (check is not None) == (len(whole) > 100)
    if check is None:
        assert json.loads(sent.body) == [[data], {}, EMBED]
        assert store.puts == 0
        return
    opened = read_stored(store.fetch(check.reference), BOUNDS)
    assert (list(opened.args), dict(opened.kwargs), opened.embed) == ([data], {}, EMBED)
    assert check.digest == digest([[data], {}]), "the digest of a message that has its body"


def test_the_small_body_is_one_that_celery_reads_and_no_handler_takes(offloader):
    sent = publish(offloader, "x" * 500)
    args, kwargs, embed = json.loads(sent.body)
    assert (args, embed, sent.content_type) == ([], EMBED, "application/json")
    assert list(kwargs) == [ARGUMENT]
    assert "set payloads.url, or update this worker" in kwargs[ARGUMENT]

    def handler(data):
        return data

    with pytest.raises(TypeError, match=ARGUMENT):
        handler(*args, **kwargs)


def test_a_store_that_is_away_keeps_the_message_from_being_sent(offloader, store):
    store.away = True
    with pytest.raises(PayloadStoreUnavailable):
        publish(offloader, "x" * 500)
    store.away = False
    assert check_in(publish(offloader, "x" * 500).headers) is not None


def test_a_message_whose_body_is_stored_goes_on_as_it_is(store):
    eager = BodyOffloader(store, 0)
    sent = publish(eager, "x" * 500)
    copy = publish(eager, None, headers=dict(sent.headers))
    assert copy.headers == sent.headers
    assert store.puts == 1


@pytest.mark.parametrize(
    ("headers", "options"),
    [
        ({"id": "1"}, {}),
        ({}, {}),
        (None, {"serializer": None, "content_type": "application/x-python-serialize"}),
    ],
)
def test_what_is_no_task_in_json_is_sent_whole(offloader, store, headers, options):
    channel = Sent()
    producer = OffloadingProducer(channel, auto_declare=False, offloader=offloader)
    headers = {"task": "t", "id": "1"} if headers is None else headers
    options = {"content_type": "application/json", "content_encoding": "utf-8", **options}
    producer.publish(b"[" + b" " * 500 + b"]", headers=headers, routing_key="q", **options)
    assert store.puts == 0
    assert len(channel.messages[0].body) > 500


def test_what_fits_once_it_is_compressed_is_compressed_and_what_does_not_is_stored(
    offloader, store
):
    sent = publish(offloader, "x" * 5000, compression="zlib")
    assert (sent.headers["compression"], store.puts) == ("application/x-gzip", 0)
    text = "".join(chr(32 + number * number % 90) for number in range(5000))
    sent = publish(offloader, text, compression="zlib")
    assert "compression" not in sent.headers
    opened = read_stored(store.fetch(check_in(sent.headers).reference), BOUNDS)
    assert list(opened.args) == [text]


def test_followers_stay_with_the_message_unless_they_are_large(offloader, store):
    small = {**EMBED, "chain": [{"task": "next", "args": []}]}
    sent = publish(offloader, "x" * 500, embed=small)
    assert json.loads(sent.body)[2] == small
    assert not check_in(sent.headers).follows
    large = {**EMBED, "chain": [{"task": "next", "args": ["y" * 20_000]}]}
    sent = publish(offloader, "x", embed=large)
    assert json.loads(sent.body)[2] == EMBED
    check = check_in(sent.headers)
    assert check.follows
    assert read_stored(store.fetch(check.reference), BOUNDS).embed == large


def test_one_event_for_several_handlers_is_stored_once(store):
    now = [0.0]
    offloader = BodyOffloader(store, 100, monotonic=lambda: now[0])
    for task in ("a", "b", "c"):
        publish(offloader, "x" * 500, headers={"task": task, "id": task})
    assert store.puts == 1
    now[0] = 6.0  # what deletes old bodies counts from the last put
    publish(offloader, "x" * 500)
    assert store.puts == 2


def test_a_batch_is_prepared_before_anything_is_sent(offloader, store):
    producer = OffloadingProducer(Sent(), auto_declare=False, offloader=offloader)
    way = {"content_type": "application/json", "content_encoding": "utf-8", "routing_key": "q"}
    small = {**way, "headers": {"task": "t"}}
    assert producer.prepared("[[1], {}, {}]", small) == ("[[1], {}, {}]", small)
    body, options = producer.prepared(
        json.dumps([["x" * 500], {}, EMBED]), {**way, "headers": {"task": "t"}, "compression": None}
    )
    assert len(body) < 500
    assert check_in(options["headers"]) is not None
    assert store.puts == 1


def test_the_safe_size_of_each_broker_is_below_its_limit():
    assert safe_size("sqs://localhost:4566") * 4 / 3 < 2**20 - 2**16
    assert safe_size("amqps://u:p@host/vhost") < 16 * 2**20
    assert safe_size("redis://localhost") == safe_size("memory://") == 2**20


# -- who holds a body ------------------------------------------------------------------------------


@pytest.fixture
def holders():
    return MemoryPayloadHolders()


@pytest.fixture
def registering(store, holders):
    return BodyOffloader(store, 100, BodyRegistration(lambda: holders), monotonic=lambda: 0.0)


def held(holders):
    """Who holds which body, by its URI."""
    found = holders.find(PayloadState.HELD, timedelta(0), limit=99)
    return {one.uri: holders.holders_of(one.uri) for one in found}


def test_a_body_is_held_by_its_message_before_it_is_put(registering, holders, store):
    seen = []
    put = MemoryPayloadStore.put

    def spy(payload, name=None):
        reference = put(
            store, payload, lambda *asked: seen.append(dict(store.payloads)) or name(*asked)
        )
        seen.append(held(holders))
        return reference

    store.put = spy
    sent = publish(registering, "x" * 500, headers={"task": "t", "id": "1", REPLAY: 2})
    check = check_in(sent.headers)
    holder = message_holder(key_for("t", "1"), 2, check.digest)
    assert seen == [{}, {check.reference.uri: {holder}}]
    assert check.hold(key_for("t", "1"), 2) == (check.reference.uri, holder)
    assert store.fetch(check.reference)


def test_the_holder_is_the_one_that_the_delivery_releases(registering, holders):
    headers = {"task": "app.t", "id": "1", **to_headers(Event(id="e:1", type="x", data=None))}
    sent = publish(registering, "x" * 500, headers=headers)
    message = Message(
        body=sent.body, content_type="application/json", content_encoding="utf-8",
        headers=sent.headers, queue="q",
    )  # fmt: skip
    delivery = read(message, args=[], kwargs={}, token="t", owner="o")
    assert delivery.hold is not None
    assert held(holders) == {delivery.hold.uri: {delivery.hold.holder}}


@pytest.mark.parametrize("way", ["at once", "in a batch"])
def test_a_replay_that_names_a_stored_body_holds_it_and_a_copy_does_not(registering, holders, way):
    first = publish(registering, "x" * 500)
    claim = key_for("t", "1")

    def send_again(**position):
        headers = {**first.headers, **position}
        as_it_is = {"content_type": "application/json", "content_encoding": "utf-8"}
        producer = OffloadingProducer(Sent(), auto_declare=False, offloader=registering)
        if way == "at once":
            producer.publish(first.body, headers=headers, routing_key="q", **as_it_is)
        else:
            producer.prepared(first.body, {"headers": headers, **as_it_is})

    check = check_in(first.headers)
    before = {check.hold(claim, 0).holder}
    for position in ({HOP: 1}, {HOP: 1, REPLAY: 1}):
        send_again(**position)
        assert held(holders) == {check.reference.uri: before}
    send_again(**{REPLAY: 1})
    assert held(holders) == {check.reference.uri: before | {check.hold(claim, 1).holder}}


def test_a_replay_that_dies_behind_its_hold_leaves_that_and_loses_nothing(registering, holders):
    class Killed(BaseException):
        pass

    class Cut(Sent):
        def basic_publish(self, *_args, **_options):
            raise Killed

    first = publish(registering, "x" * 500)
    check, claim = check_in(first.headers), key_for("t", "1")
    letter = PayloadHold(check.reference.uri, "letter:1")
    holders.join([letter])
    holders.release([check.hold(claim, 0)])
    producer = OffloadingProducer(Cut(), auto_declare=False, offloader=registering)
    with pytest.raises(Killed):
        producer.publish(
            first.body, headers={**first.headers, REPLAY: 1}, routing_key="q",
            content_type="application/json", content_encoding="utf-8",
        )  # fmt: skip
    assert held(holders) == {check.reference.uri: {letter.holder, check.hold(claim, 1).holder}}


@pytest.mark.parametrize("error", [StoreUnavailable("redis is away"), RuntimeError("NOPERM")])
def test_a_replay_that_cannot_be_noted_leaves_its_body_to_its_letter(
    registering, store, holders, caplog, error
):
    def away():
        raise error

    first = publish(registering, "x" * 500)
    check = check_in(first.headers)
    letter = PayloadHold(check.reference.uri, "letter:1")
    holders.join([letter])
    holders.release([check.hold(key_for("t", "1"), 0)])
    without = BodyOffloader(store, 100, BodyRegistration(away))
    for _ in range(3):
        without.hold_replay({**first.headers, REPLAY: 1})
    [told] = caplog.messages
    assert told.startswith("replay_holds_nothing: only its letter holds its body")
    assert held(holders) == {check.reference.uri: {letter.holder}}


def test_one_body_for_several_handlers_is_held_by_each(registering, holders, store):
    for task in ("a", "b", "c"):
        publish(registering, "x" * 500, headers={"task": task, "id": "1"})
    assert store.puts == 1
    assert [len(one) for one in held(holders).values()] == [3]


def test_a_body_that_was_condemned_meanwhile_is_put_again(registering, holders, store):
    first = check_in(publish(registering, "x" * 500).headers).reference
    holders.condemn([first.uri], PayloadState.HELD, timedelta(0))
    store.delete(first.uri)
    second = check_in(publish(registering, "x" * 500).headers).reference
    assert (second.uri != first.uri, second.sha256 == first.sha256) == (True, True)
    assert store.fetch(second)
    assert list(held(holders)) == [second.uri]


def test_a_copy_registers_nothing(registering, holders):
    sent = publish(registering, "x" * 500)
    before = held(holders)
    channel = Sent()
    producer = OffloadingProducer(channel, auto_declare=False, offloader=registering)
    producer.publish(
        sent.body + b" " * 500, headers=dict(sent.headers), routing_key="q",
        content_type="application/json", content_encoding="utf-8",
    )  # fmt: skip
    assert check_in(channel.messages[0].headers) == check_in(sent.headers)
    assert held(holders) == before


@pytest.mark.parametrize("error", [StoreUnavailable("redis is away"), RuntimeError("NOPERM")])
def test_a_register_that_is_away_costs_no_message_and_is_said_once(store, holders, caplog, error):
    def away():
        raise error

    now = [0.0]
    offloader = BodyOffloader(store, 100, BodyRegistration(away), monotonic=lambda: now[0])
    for number in range(3):
        now[0] += 6.0
        check = check_in(
            publish(offloader, "x" * 500, headers={"task": "t", "id": str(number)}).headers
        )
        assert store.fetch(check.reference)
        assert check.hold("k", 0) is None, "it is kept for ever"
    assert [one.split(":")[0] for one in caplog.messages] == ["payload_not_registered"]


def test_an_address_that_no_register_takes_is_not_registered(holders):
    assert holding(holders, "me")("s3://b/" + "x" * 2000, 1) == "s3://b/" + "x" * 2000
    assert holding(holders, "me")("s3://b/\x07", 1) == "s3://b/\x07"
    assert held(holders) == {}
