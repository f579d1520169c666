from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from google.api_core.exceptions import AlreadyExists
from google.cloud import pubsub_v1
from google.oauth2.credentials import Credentials

from adapters.pubsub_site import LEASE, PROJECT
from angzarr.adapters.pubsub import topics
from angzarr.adapters.pubsub.dead_letters import PubSubDeadLetterQueue
from angzarr.adapters.pubsub.letter_publisher import LIMIT
from angzarr.dead_letters.names import queue_name
from angzarr.dead_letters.queue import DeadLetterQueue, RawLetter
from angzarr.errors import DeadLetterQueueUnavailable
from angzarr.events.event import Event
from contracts.dead_letters import (
    NOTHING,
    ChoosyRawLettersContract,
    ForeignRecordsContract,
    LimitedLettersContract,
    ServerDeadLetterQueueContract,
    a_letter,
    ids,
    letters_of,
    take,
)


class TestPubSubDeadLetterQueue(
    LimitedLettersContract,
    ForeignRecordsContract,
    ChoosyRawLettersContract,
    ServerDeadLetterQueueContract,
):
    unfit_type = "x" * 1_025
    limit = LIMIT
    told_limit = "at most 10000000 bytes"
    several_to_a_request = 2_000_000

    @pytest.fixture(autouse=True)
    def backend(self, pubsub_emulator: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.emulator = pubsub_emulator
        self.monkeypatch = monkeypatch

    def open(self, **changes: Any) -> DeadLetterQueue:
        return PubSubDeadLetterQueue(PROJECT, **({"lease": LEASE} | changes))

    def open_away(self, port: int) -> DeadLetterQueue:
        self.monkeypatch.delenv("PUBSUB_EMULATOR_HOST")
        return self.open(
            endpoint=f"127.0.0.1:{port}",
            timeout=timedelta(seconds=1),
            options={"credentials": Credentials("s3cret")},
        )

    def put_raw(self, domain: str, raw: bytes, content_type: str | None) -> None:
        publisher = pubsub_v1.PublisherClient()
        attributes = {"content_type": content_type} if content_type else {}
        topic = publisher.topic_path(PROJECT, queue_name(domain))
        publisher.publish(topic, raw, **attributes).result(60)
        publisher.stop()
        publisher.transport.close()

    def put_record(self, domain: str, raw: bytes, name: str) -> None:
        publisher = pubsub_v1.PublisherClient()
        topic = publisher.topic_path(PROJECT, queue_name(domain))
        publisher.publish(topic, raw, name=name, other="x" * 1_000).result(60)
        publisher.stop()
        publisher.transport.close()

    def subscription(self, domain: str) -> Any:
        with pubsub_v1.SubscriberClient() as subscriber:
            path = subscriber.subscription_path(PROJECT, queue_name(domain))
            return subscriber.get_subscription(subscription=path)

    def delete(self, domain: str, *, topic: bool = True, subscription: bool = True) -> None:
        publisher = pubsub_v1.PublisherClient()
        if topic:
            publisher.delete_topic(topic=publisher.topic_path(PROJECT, queue_name(domain)))
        publisher.transport.close()
        if subscription:
            with pubsub_v1.SubscriberClient() as subscriber:
                path = subscriber.subscription_path(PROJECT, queue_name(domain))
                subscriber.delete_subscription(subscription=path)

    def test_the_subscription_keeps_letters_as_long_as_it_can_and_never_expires(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        queue.put([a_letter(domain)])
        made = self.subscription(domain)
        assert made.topic == f"projects/{PROJECT}/topics/{queue_name(domain)}"
        assert made.message_retention_duration == timedelta(days=7)  # the emulators' longest
        assert not made.expiration_policy.ttl
        assert made.ack_deadline_seconds == 10

    def test_a_topic_and_subscription_that_were_deleted_are_made_anew(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        queue.put([a_letter(domain)])
        queue.done(take(queue, [domain], 1))
        self.delete(domain)
        assert queue.put([a_letter(domain, 1)]) == [None]
        assert ids(take(queue, [domain], 1)) == [f"{domain}-1"]

    def test_a_receiver_outlives_the_deletion_of_its_subscription(
        self, opened: Callable[[], DeadLetterQueue], domain: str
    ) -> None:
        self.monkeypatch.setattr(topics, "_TRUSTED", {False: 60, True: 0})
        receiver, writer = opened(), opened()
        writer.put([a_letter(domain), a_letter(domain, 1)])
        first, second = take(receiver, [domain], 2)
        self.delete(domain)
        receiver.done([first])
        assert receiver.receive([domain], limit=1, wait=NOTHING) == []
        receiver.done([second])
        assert writer.put([a_letter(domain, 2)]) == [None]
        assert ids(take(receiver, [domain], 1)) == [f"{domain}-2"]

    def test_the_letters_of_a_topic_that_was_deleted_are_read_before_anything_is_made_anew(
        self, opened: Callable[[], DeadLetterQueue], domain: str
    ) -> None:
        queue = opened()
        queue.put([a_letter(domain)])
        self.delete(domain, subscription=False)
        [refusal] = queue.put([a_letter(domain, 1)])
        assert "was deleted, and letters may still wait in it" in str(refusal)
        assert ids(take(opened(), [domain], 1)) == [f"{domain}-0"]
        self.delete(domain, topic=False)
        assert queue.put([a_letter(domain, 1)]) == [None]

    def test_missing_names_are_refused_where_none_are_to_be_made(self, domain: str) -> None:
        queue = self.open(create_missing=False)
        name = queue_name(domain)
        told = f"the subscription {name} is missing; make it, or set dlq.create_missing: true"
        assert queue.put([a_letter(domain)]) == [told]
        with pytest.raises(DeadLetterQueueUnavailable, match="is missing; make it"):
            queue.receive([domain], limit=1, wait=NOTHING)
        with self.as_it_should_be(domain):
            assert queue.put([a_letter(domain)]) == [None]
        queue.close()

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"topic": f"projects/{PROJECT}/topics/another"}, "another, not to projects/"),
            (
                {"push_config": {"push_endpoint": "https://example.com"}},
                "is not a pull",
            ),
            ({"filter": 'attributes.domain = "x"'}, "has a filter, which would lose letters"),
        ],
    )
    def test_no_letter_is_trusted_to_a_subscription_that_would_lose_it(
        self, domain: str, changes: dict[str, Any], said: str
    ) -> None:
        with self.as_it_should_be(domain, **changes):
            queue = self.open(create_missing=False)
            assert said in str(queue.put([a_letter(domain)])[0])
            with pytest.raises(DeadLetterQueueUnavailable, match=said):
                queue.receive([domain], limit=1, wait=NOTHING)
            queue.close()

    def test_a_subscription_that_could_lose_letters_is_told_once(
        self, domain: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        day = timedelta(days=1)
        changes = {"message_retention_duration": day, "expiration_policy": {"ttl": 2 * day}}
        with self.as_it_should_be(domain, **changes):
            queue = self.open()
            assert queue.put([a_letter(domain), a_letter(f"{domain}-ours")]) == [None, None]
            assert len(take(queue, [domain, f"{domain}-ours"], 2)) == 2
            queue.close()
        warned = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
        told = (
            f"dead_letters_at_risk: Pub/Sub could lose or move dead letters. {queue_name(domain)}:"
            " message_retention_duration=86400s (set it to 604800s),"
            " it expires after 172800s without a reader (let it never expire)"
        )
        assert warned == [told]
        assert self.subscription(domain).message_retention_duration == day, "it is another's"

    @contextlib.contextmanager
    def as_it_should_be(self, domain: str, **changes: Any) -> Iterator[None]:
        """Make the topic and the subscription by hand, the latter with *changes*."""
        publisher, subscriber = pubsub_v1.PublisherClient(), pubsub_v1.SubscriberClient()
        own = publisher.topic_path(PROJECT, queue_name(domain))
        for each in {own, changes.get("topic", own)}:
            with contextlib.suppress(AlreadyExists):
                publisher.create_topic(name=each)
        name = subscriber.subscription_path(PROJECT, queue_name(domain))
        subscriber.create_subscription(request={"name": name, "topic": own} | changes)
        yield
        publisher.transport.close()
        subscriber.close()

    def test_letters_of_one_aggregate_come_in_order_one_after_the_other(self, domain: str) -> None:
        queue = self.open(ordering=True)
        mine = Event(id="e", type="order.placed", data={}, root="r-mine")
        letters = [a_letter(domain, n, event=mine) for n in range(6)]
        assert queue.put(letters) == [None] * 6
        seen = []
        while len(seen) < 6:
            taken = queue.receive([domain], limit=6, wait=timedelta(seconds=5))
            seen += [receipt.letter.id for receipt in taken]
            queue.done(taken)
        assert seen == [letter.id for letter in letters]
        queue.close()

    def test_bytes_that_are_no_letter_travel_among_ordered_letters(self, domain: str) -> None:
        queue = self.open(ordering=True)
        raws = [RawLetter(domain=domain, raw=raw, content_type="") for raw in (b"x", b"y")]
        assert queue.put([a_letter(domain)]) == [None]
        assert queue.put_raw(raws) == [None, None]
        assert {b"x", b"y"} <= {one.raw for one in take(queue, [domain], 3)}
        queue.close()

    def test_order_that_the_subscription_does_not_keep_is_told(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        queue.put([a_letter(domain)])
        ordered = self.open(ordering=True)
        assert "keeps no order" in str(ordered.put([a_letter(domain, 1)])[0])
        assert ids(take(ordered, [domain], 1)) == [f"{domain}-0"]
        ordered.close()

    def test_domain_and_correlation_travel_as_attributes_that_fit(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        letter = a_letter(domain)
        correlated = replace(letter, event=replace(letter.event, correlation_id="c-1"))
        unfit = replace(letter, id="u", event=replace(letter.event, correlation_id="ö" * 600))
        assert queue.put([correlated, unfit]) == [None, None]
        with pubsub_v1.SubscriberClient() as subscriber:
            path = subscriber.subscription_path(PROJECT, queue_name(domain))
            received = subscriber.pull(subscription=path, max_messages=2).received_messages
        by_correlation = {one.message.attributes.get("correlation_id"): one for one in received}
        assert by_correlation.keys() == {"c-1", None}
        assert dict(by_correlation["c-1"].message.attributes) == {
            "content_type": "application/json",
            "domain": domain,
            "correlation_id": "c-1",
        }

    def test_no_domain_starves_the_others(self, queue: DeadLetterQueue, domain: str) -> None:
        other = f"{domain}-other"
        queue.put([*letters_of(domain, 20), a_letter(other)])
        receipts = take(queue, [domain, other], 21)
        assert {receipt.domain for receipt in receipts} == {domain, other}
        queue.close()
        seen = [queue.receive([domain, other], limit=3, wait=timedelta(seconds=5)) for _ in "1234"]
        assert other in {receipt.domain for some in seen for receipt in some}
