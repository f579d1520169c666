"""What leaves a publisher that encrypts bodies: nothing that it was given can be read in it."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.adapters.celery.publish.body_offloader import BodyOffloader
from angzarr.adapters.celery.publish.message_template import hide_arguments
from angzarr.adapters.celery.publish.offloading_producer import OffloadingProducer
from angzarr.adapters.cryptography.xaes import XaesCipher
from angzarr.errors import PayloadStoreUnavailable, UnserializableEvent
from angzarr.events import headers as names
from angzarr.events.event import Message
from angzarr.payloads.body_sealer import SEALED, BodyKeys, BodySealer
from angzarr.payloads.claim_check import HEADER, check_in
from angzarr.payloads.sealed_message import STORED_BODY, find_sealed
from memory_payloads import MemoryPayloadStore

EMBED = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
CANARY = "the canary sings"
KEYS = BodyKeys(keys={"k1": b"k" * 32, "acme": b"a" * 32}, current="k1", tenants={"acme": "acme"})


@pytest.fixture
def sealer():
    return BodySealer(keys=KEYS, cipher=XaesCipher())


class Channel:
    def __init__(self):
        self.messages = []

    def prepare_message(self, body, priority, content_type, content_encoding, headers, properties):
        return SimpleNamespace(body=body, content_type=content_type, headers=headers)

    def basic_publish(self, message, **_way):
        self.messages.append(message)


def publish(offloader, data, *, embed=EMBED, body=None, **options):
    channel = Channel()
    producer = OffloadingProducer(channel, auto_declare=False, offloader=offloader)
    repr_ = {"argsrepr": f"[{data!r}]", "kwargsrepr": "{}"}
    headers = {"task": "t", "id": "e1", **repr_, **options.pop("headers", {})}
    options = {"serializer": "json", **options}
    body = ([data], {}, embed) if body is None else body
    producer.publish(body, headers=headers, routing_key="q", **options)
    return channel.messages[0]


def opened(sealer, sent, store=None, event_id="e1"):
    check = check_in(sent.headers)
    body = sent.body if isinstance(sent.body, bytes) else sent.body.encode()
    sealed = find_sealed(body) if check.is_inline else store.fetch(check.reference)
    return json.loads(sealer.open(sealed, event_id, check.reference.unpacked_size, check.key))


@given(st.text(min_size=12, max_size=200))
def test_a_small_body_travels_sealed_in_its_message(data):
    sealer = BodySealer(keys=KEYS, cipher=XaesCipher())
    sent = publish(BodyOffloader(None, 1000, sealer=sealer, seals_all=True), data)
    assert sent.content_type == "application/json"
    assert json.dumps(data) not in f"{sent.body}{sent.headers}"
    assert sent.headers["argsrepr"] == sent.headers["kwargsrepr"] == SEALED
    assert opened(sealer, sent) == [[data], {}, EMBED]


@pytest.mark.parametrize("size", [0, 300, 4000])
@pytest.mark.parametrize("seals_all", [True, False])
def test_by_its_size_a_body_is_sent_or_stored(sealer, size, seals_all):
    store = MemoryPayloadStore()
    sent = publish(
        BodyOffloader(store, 1000, sealer=sealer, seals_all=seals_all), CANARY + "x" * size
    )
    check = check_in(sent.headers)
    shown = f"{sent.body}{sent.headers}{store.payloads}"
    if check is None:
        assert not seals_all
        assert size < 1000
        return
    assert CANARY not in shown
    assert check.is_inline == (size < 1000)
    assert bool(store.payloads) == (size > 1000)
    assert opened(sealer, sent, store)[0] == [CANARY + "x" * size]
    if not check.is_inline:
        assert sent.body == STORED_BODY
        assert check.reference.unpacked_size > size


def test_what_would_be_too_large_once_it_is_sealed_is_stored(sealer):
    """Base64 makes a third more of it."""
    store = MemoryPayloadStore()
    sent = publish(BodyOffloader(store, 1000, sealer=sealer, seals_all=True), "x" * 700)
    assert not check_in(sent.headers).is_inline
    assert len(sent.body) < 1000
    sent = publish(BodyOffloader(store, 1000, sealer=sealer, seals_all=True), "x" * 200)
    assert check_in(sent.headers).is_inline
    assert len(sent.body) <= 1000


@pytest.mark.parametrize("size", [10, 4000])
def test_what_follows_the_task_is_sealed_with_it(sealer, size):
    store = MemoryPayloadStore()
    embed = {**EMBED, "callbacks": [{"task": "next", "args": [CANARY]}]}
    sent = publish(
        BodyOffloader(store, 1000, sealer=sealer, seals_all=True), "x" * size, embed=embed
    )
    assert check_in(sent.headers).follows
    assert CANARY not in f"{sent.body}{sent.headers}{store.payloads}"
    assert opened(sealer, sent, store)[2] == embed


def test_each_tenant_has_its_key_and_each_event_its_own_bytes(sealer):
    offloader = BodyOffloader(None, 1000, sealer=sealer, seals_all=True)
    ours = publish(offloader, CANARY)
    theirs = publish(offloader, CANARY, headers={names.TENANT_ID: "acme"})
    assert [check_in(one.headers).key for one in (ours, theirs)] == ["k1", "acme"]
    named = publish(offloader, CANARY, headers={names.EVENT_ID: "e9"})
    assert opened(sealer, named, event_id="e9")[0] == [CANARY]
    digests = {check_in(one.headers).digest for one in (ours, theirs, named)}
    assert len(digests) == 3
    assert check_in(publish(offloader, CANARY).headers).digest in digests, "one event has one"


def test_one_body_for_several_handlers_is_stored_once_and_one_for_others_again(sealer):
    store = MemoryPayloadStore()
    offloader = BodyOffloader(store, 100, sealer=sealer, monotonic=lambda: 0.0)
    for event_id in ("e1", "e1", "e2"):
        sent = publish(offloader, "x" * 500, headers={names.EVENT_ID: event_id})
        assert opened(sealer, sent, store, event_id)[0] == ["x" * 500]
    assert len(store.payloads) == 2


def test_a_copy_is_sent_as_it_came_and_an_unsealed_one_is_sealed(sealer):
    offloader = BodyOffloader(None, 1000, sealer=sealer, seals_all=True)
    first = publish(offloader, CANARY)
    body = first.body if isinstance(first.body, bytes) else first.body.encode()
    plain = {"content_type": "application/json", "content_encoding": "utf-8", "serializer": None}
    again = publish(offloader, CANARY, body=body, headers=first.headers, **plain)
    assert again.body in (first.body, body)
    assert again.headers[HEADER] == first.headers[HEADER]
    raw = json.dumps([[CANARY], {}, EMBED]).encode()
    assert opened(sealer, publish(offloader, CANARY, body=raw, **plain))[0] == [CANARY]


def test_what_waits_in_a_table_is_sealed_where_all_is(sealer):
    raw = json.dumps([[CANARY], {}, EMBED]).encode()
    message = Message(
        body=raw, content_type="application/json", content_encoding="utf-8", queue="q",
        headers={"task": "t", "id": "e1", "argsrepr": CANARY}, exchange="", routing_key="q",
    )  # fmt: skip
    sealed = BodyOffloader(None, 1000, sealer=sealer, seals_all=True).sealed(message)
    assert CANARY not in repr(sealed)
    assert opened(sealer, sealed)[0] == [CANARY]
    assert message.headers["argsrepr"] == CANARY, "what was given stays as it is"
    assert BodyOffloader(None, 1000, sealer=sealer).sealed(message) is message


def test_a_task_that_cannot_be_sealed_is_refused_and_not_sent(sealer):
    offloader = BodyOffloader(None, 1000, sealer=sealer, seals_all=True)
    with pytest.raises(UnserializableEvent, match="set task_serializer to json"):
        publish(offloader, CANARY, body={"args": [CANARY], "kwargs": {}})
    assert publish(offloader, "x", body={"a": 1}, headers={"task": ""}).body == '{"a": 1}'


@pytest.mark.parametrize(
    "data",
    [
        {"__type__": "unknown", "__value__": 1},
        {"__type__": "datetime", "__value__": "no time"},
    ],
)
@pytest.mark.parametrize("store", [None, MemoryPayloadStore()])
def test_no_data_of_an_event_can_turn_encryption_off(sealer, store, data):
    """A customer's JSON may look like one of Celery's types, and be none."""
    text = json.dumps([[data | {"card": CANARY}], {}, EMBED])
    most = 1000 if store is None else 10
    offloader = BodyOffloader(store, most, sealer=sealer, seals_all=True)
    sent = publish(
        offloader, None, body=text, serializer=None, content_type="application/json",
        content_encoding="utf-8",
    )  # fmt: skip
    assert CANARY not in f"{sent.body}{sent.headers}"
    assert opened(sealer, sent, store) == json.loads(text)


def test_a_store_that_is_away_keeps_the_message_from_being_sent(sealer):
    class Away(MemoryPayloadStore):
        def put(self, payload, name=None):
            raise PayloadStoreUnavailable("the payload store is away")

    with pytest.raises(PayloadStoreUnavailable):
        publish(BodyOffloader(Away(), 10, sealer=sealer), CANARY)


def test_texts_of_arguments_are_hidden_in_the_message_and_in_celerys_event():
    message = ({"argsrepr": CANARY, "kwargsrepr": "{}", "id": "1"}, {}, None, {"args": CANARY})
    hide_arguments(message)
    assert message == (
        {"argsrepr": SEALED, "kwargsrepr": SEALED, "id": "1"},
        {},
        None,
        {"args": SEALED},
    )
    hide_arguments(({"argsrepr": ""}, {}, None, None))
