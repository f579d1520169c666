from __future__ import annotations

import json
import logging
import socket
from datetime import timedelta
from typing import Any

import pytest

from adapters.aws_letters import SizedAwsLetters, TopicLetters
from angzarr.adapters.sqs import fan_out
from angzarr.adapters.sqs.dead_letters import SnsSqsDeadLetterQueue
from angzarr.adapters.sqs.fan_out import policy_for
from angzarr.dead_letters.codec import JSON_CONTENT_TYPE, Form, encode
from angzarr.dead_letters.names import queue_name
from angzarr.dead_letters.queue import DeadLetterQueue, RawLetter, TooLarge
from angzarr.errors import DeadLetterQueueUnavailable
from contracts.dead_letters import (
    ChoosyRawLettersContract,
    ForeignRecordsContract,
    ServerDeadLetterQueueContract,
    a_letter,
    ids,
    take,
)
from contracts.ordered_letters import OrderedLettersContract


class TestSnsSqsDeadLetterQueue(
    TopicLetters,
    SizedAwsLetters,
    ForeignRecordsContract,
    ChoosyRawLettersContract,
    ServerDeadLetterQueueContract,
):
    limit = fan_out.DEFAULT_LIMIT
    told_limit = "SNS takes at most 262144 bytes"
    several_to_a_request = 100_000

    @pytest.fixture
    def away_port(self) -> int:
        """A port where nobody listens; a silent one costs 9 s, and is SQS's client's affair."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            return int(listener.getsockname()[1])

    def outlive(self, queue: Any, domain: str) -> None:
        """Let the time pass for which the topic is trusted."""
        queue._topics.doubt(domain)

    # -- what is made ----------------------------------------------------------------------

    def test_the_first_letter_makes_topic_queue_policy_and_subscription(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        queue.put([a_letter(domain)])
        [subscription] = self.subscriptions(domain)
        told = self.sns.get_subscription_attributes(SubscriptionArn=subscription)["Attributes"]
        queue_made = self.attributes(domain)
        assert told["RawMessageDelivery"] == "true"
        assert queue_made["MessageRetentionPeriod"] == str(14 * 24 * 3600)
        assert queue_made["Policy"] == policy_for(queue_made["QueueArn"], self.topic(domain))

    def test_a_receiver_that_comes_first_makes_a_queue_that_the_topic_may_send_to(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        assert queue.receive([domain], limit=1, wait=timedelta(0)) == []
        assert "sns.amazonaws.com" in self.attributes(domain)["Policy"]
        assert queue.put([a_letter(domain)]) == [None]

    def test_what_others_made_is_used_as_it_is(self, domain: str) -> None:
        self.make_queue(domain)
        policy = policy_for(self.attributes(domain)["QueueArn"], self.topic(domain))
        self.sqs.set_queue_attributes(QueueUrl=self.url(domain), Attributes={"Policy": policy})
        self.make_topic(domain)
        made = self.subscribe(domain, RawMessageDelivery="true")
        before = self.attributes(domain)
        queue = self.open(create_missing=False)
        assert queue.put([a_letter(domain)]) == [None]
        assert ids(take(queue, [domain], 1)) == [f"{domain}-0"]
        assert self.subscriptions(domain) == [made]
        assert self.attributes(domain)["LastModifiedTimestamp"] == before["LastModifiedTimestamp"]
        queue.close()

    def test_what_is_missing_and_not_to_be_made_is_told_piece_by_piece(self, domain: str) -> None:
        queue, name = self.open(create_missing=False), queue_name(domain)

        def refused() -> str:
            with pytest.raises(DeadLetterQueueUnavailable) as caught:
                queue.put([a_letter(domain)])
            assert "\n" not in str(caught.value)
            return str(caught.value)

        assert refused().startswith(f"the SQS queue {name} does not exist: create it")
        self.make_queue(domain)
        assert refused().startswith(f"the SNS topic {name} does not exist")
        self.make_topic(domain)
        assert refused().startswith(f"the queue {name} is not subscribed to the topic")
        subscription = self.subscribe(domain, FilterPolicy='{"domain": ["other"]}')
        told = refused()
        assert f"the policy of the queue {name} does not let the topic send" in told
        assert "has a FilterPolicy, which drops what does not fit: remove it" in told
        policy = policy_for(self.attributes(domain)["QueueArn"], self.topic(domain))
        assert policy in told, "the statement that is wanted"
        self.sqs.set_queue_attributes(QueueUrl=self.url(domain), Attributes={"Policy": policy})
        self.sns.set_subscription_attributes(
            SubscriptionArn=subscription, AttributeName="FilterPolicy", AttributeValue="{}"
        )
        assert queue.put([a_letter(domain)]) == [None]
        assert ids(take(queue, [domain], 1)) == [f"{domain}-0"]
        queue.close()

    def test_a_policy_that_is_given_to_a_queue_is_waited_for(
        self, queue: DeadLetterQueue, domain: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(fan_out, "CHANGED_FOR", 60.0)
        self.make_queue(domain)
        with pytest.raises(DeadLetterQueueUnavailable, match="until its policy is surely in force"):
            queue.put([a_letter(domain)])
        monkeypatch.setattr(fan_out, "CHANGED_FOR", 0.0)
        assert queue.put([a_letter(domain)]) == [None]
        assert ids(take(queue, [domain], 1)) == [f"{domain}-0"]

    def test_the_policy_of_somebody_else_is_not_touched(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        foreign = '{"Version": "2012-10-17", "Statement": []}'
        self.make_queue(domain, Policy=foreign)
        with pytest.raises(DeadLetterQueueUnavailable, match="add the statement of"):
            queue.put([a_letter(domain)])
        assert self.attributes(domain)["Policy"] == foreign

    # -- what happens meanwhile ------------------------------------------------------------

    def test_a_topic_that_was_deleted_is_made_again(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        queue.put([a_letter(domain)])
        self.sns.delete_topic(TopicArn=self.topic(domain))
        assert queue.put([a_letter(domain, 1)]) == [None]
        assert ids(take(queue, [domain], 2)) == [f"{domain}-0", f"{domain}-1"]

    def test_a_queue_that_was_deleted_is_made_again_when_it_is_looked_at(
        self, queue: SnsSqsDeadLetterQueue, domain: str
    ) -> None:
        queue.put([a_letter(domain)])
        self.sqs.delete_queue(QueueUrl=self.url(domain))
        self.outlive(queue, domain)
        assert queue.put([a_letter(domain, 1)]) == [None]
        assert ids(take(queue, [domain], 1)) == [f"{domain}-1"]

    def test_a_subscription_that_was_deleted_is_made_again_when_it_is_looked_at(
        self, queue: SnsSqsDeadLetterQueue, domain: str
    ) -> None:
        queue.put([a_letter(domain)])
        [made] = self.subscriptions(domain)
        self.sns.unsubscribe(SubscriptionArn=made)
        self.outlive(queue, domain)
        assert queue.put([a_letter(domain, 1)]) == [None]
        assert ids(take(queue, [domain], 2)) == [f"{domain}-0", f"{domain}-1"]

    def test_a_topic_is_looked_at_again_after_a_minute_and_not_before(
        self, domain: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue, now = self.open(), [0.0]
        monkeypatch.setattr(queue._topics, "_monotonic", lambda: now[0])
        queue.put([a_letter(domain)])
        [made] = self.subscriptions(domain)
        looked: list[str] = []
        find = queue._topics._subscriptions.find

        def found(*names: str) -> Any:
            looked.append(names[0])
            return find(*names)

        monkeypatch.setattr(queue._topics._subscriptions, "find", found)
        now[0] = 59
        queue.put([a_letter(domain, 1)])
        assert looked == []
        now[0] = 61
        queue.put([a_letter(domain, 2)])
        assert looked == [queue_name(domain)]
        assert self.subscriptions(domain) == [made]
        queue.close()

    # -- sizes -----------------------------------------------------------------------------

    def test_a_letter_that_the_queue_would_refuse_is_not_given_to_the_topic(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        self.make_queue(domain, MaximumMessageSize="4096")
        answers = queue.put([a_letter(domain), a_letter(domain, 1, error_stack="x" * 9_000)])
        assert answers[0] is None
        assert isinstance(answers[1], TooLarge)

    # -- what others send ------------------------------------------------------------------

    @pytest.mark.parametrize("raw_delivery", ["true", "false"])
    def test_letters_are_read_whether_their_subscription_is_raw_or_not(
        self,
        queue: SnsSqsDeadLetterQueue,
        domain: str,
        raw_delivery: str,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        self.make_queue(domain)
        self.make_topic(domain)
        self.subscribe(domain, RawMessageDelivery=raw_delivery)
        letter = a_letter(domain, explanation='a "quoted" Größe \x00')
        assert queue.put([letter]) == [None]
        other = encode(a_letter(domain, 1), Form.BINARY)
        self.publish_raw(domain, *other)
        self.publish_raw(domain, b"not a letter", JSON_CONTENT_TYPE)
        assert queue.put_raw([RawLetter(domain=domain, raw=b"\xff", content_type="")]) == [None]
        taken = take(queue, [domain], 4)
        by_problem = {receipt.problem: receipt for receipt in taken if receipt.problem}
        assert [r.letter for r in taken if r.letter and r.letter.id == letter.id] == [letter]
        assert (other.body, other.content_type) in [(r.raw, r.content_type) for r in taken]
        assert by_problem["the letter is not JSON"].raw == b"not a letter"
        assert (b"\xff", "") in [(r.raw, r.content_type) for r in taken]
        queue.done(taken)
        warned = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
        assert len(warned) == (raw_delivery == "false")
        assert all("set RawMessageDelivery=true" in line for line in warned)

    def test_what_only_looks_like_a_notification_comes_as_it_is(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        queue.put([a_letter(domain)])
        queue.done(take(queue, [domain], 1))
        forged = json.dumps({"Type": "Notification", "TopicArn": 7, "Message": "x"}).encode()
        self.put_raw(domain, forged, None)
        [receipt] = take(queue, [domain], 1)
        assert receipt.raw == forged


class TestFifoSnsSqsDeadLetterQueue(
    TopicLetters, ForeignRecordsContract, ChoosyRawLettersContract, OrderedLettersContract
):
    fifo = True
