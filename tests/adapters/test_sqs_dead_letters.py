from __future__ import annotations

import base64
from dataclasses import replace
from datetime import timedelta
from typing import Any

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError

from angzarr.adapters.sqs.dead_letters import SqsDeadLetterQueue
from angzarr.adapters.sqs.letter_sender import LIMIT
from angzarr.dead_letters.codec import PROTOBUF_CONTENT_TYPE, Form
from angzarr.dead_letters.names import queue_name
from angzarr.dead_letters.queue import DeadLetterQueue, TooLarge
from angzarr.errors import DeadLetterQueueUnavailable
from contracts.dead_letters import ServerDeadLetterQueueContract, a_letter, ids, letters_of, take


class TestSqsDeadLetterQueue(ServerDeadLetterQueueContract):
    @pytest.fixture(autouse=True)
    def backend(self, sqs_endpoint: str) -> None:
        self.endpoint = sqs_endpoint
        self.sqs = boto3.client("sqs", endpoint_url=sqs_endpoint, region_name="us-east-1")

    def open(self, **changes: Any) -> DeadLetterQueue:
        return SqsDeadLetterQueue(region="us-east-1", endpoint_url=self.endpoint, **changes)

    def open_away(self, port: int) -> DeadLetterQueue:
        return SqsDeadLetterQueue(
            region="us-east-1",
            endpoint_url=f"http://s3cret:s3cret@127.0.0.1:{port}",
            timeout=timedelta(seconds=1),
            options={"aws_access_key_id": "s3cret", "aws_secret_access_key": "s3cret"},
        )

    def url(self, domain: str) -> str:
        return self.sqs.get_queue_url(QueueName=queue_name(domain))["QueueUrl"]

    def put_raw(self, domain: str, raw: bytes, content_type: str | None) -> None:
        attributes: Any = {}
        if content_type:
            attributes = {"content_type": {"DataType": "String", "StringValue": content_type}}
        body = base64.b64encode(raw) if content_type == PROTOBUF_CONTENT_TYPE else raw
        self.sqs.send_message(
            QueueUrl=self.url(domain), MessageBody=body.decode(), MessageAttributes=attributes
        )

    def test_the_queue_keeps_letters_as_long_as_sqs_can(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        queue.put([a_letter(domain)])
        kept = self.sqs.get_queue_attributes(
            QueueUrl=self.url(domain), AttributeNames=["MessageRetentionPeriod"]
        )
        assert kept["Attributes"]["MessageRetentionPeriod"] == str(14 * 24 * 3600)

    def test_a_letter_over_the_limit_is_refused_alone(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        large = a_letter(domain, 1, metadata={"large": "x" * LIMIT})
        answers = queue.put([a_letter(domain, 0), large, a_letter(domain, 2)])
        assert answers[0] is None
        assert "at most 1048576 bytes" in str(answers[1])
        assert isinstance(answers[1], TooLarge)
        assert answers[2] is None
        assert ids(take(queue, [domain], 2)) == [f"{domain}-0", f"{domain}-2"]

    def test_letters_that_fill_several_batches_by_their_size_arrive(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        letters = [a_letter(domain, n, metadata={"some": "x" * 400_000}) for n in range(5)]
        assert queue.put(letters) == [None] * 5
        assert len(take(queue, [domain], 5)) == 5

    def test_a_letter_just_under_the_limit_is_taken(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        letter = a_letter(domain, metadata={"large": "x" * (LIMIT - 4_000)})
        assert queue.put([letter]) == [None]
        assert take(queue, [domain], 1)[0].letter == letter

    def test_the_refusal_of_one_entry_is_seen(self, queue: DeadLetterQueue, domain: str) -> None:
        self.sqs.create_queue(
            QueueName=queue_name(domain), Attributes={"MaximumMessageSize": "4096"}
        )
        answers = queue.put([a_letter(domain), a_letter(domain, 1, error_stack="x" * 9_000)])
        assert answers[0] is None
        assert "shorter than 4096 bytes" in str(answers[1])
        assert isinstance(answers[1], TooLarge)

    def test_a_queue_that_was_deleted_is_created_again(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        queue.put([a_letter(domain)])
        self.sqs.delete_queue(QueueUrl=self.url(domain))
        assert queue.put([a_letter(domain, 1)]) == [None]
        assert ids(take(queue, [domain], 1)) == [f"{domain}-1"]

    def test_a_lease_that_ends_brings_the_letter_back(self, domain: str) -> None:
        first, second = self.open(visibility=timedelta(seconds=1)), self.open()
        first.put([a_letter(domain)])
        held = take(first, [domain], 1)
        assert ids(take(second, [domain], 1)) == ids(held)
        first.close()
        second.close()

    def test_the_binary_form_travels_as_base64(self, domain: str) -> None:
        queue = self.open(form=Form.BINARY)
        assert queue.put([a_letter(domain)]) == [None]
        [receipt] = take(queue, [domain], 1)
        assert receipt.letter == a_letter(domain)
        assert receipt.content_type == PROTOBUF_CONTENT_TYPE
        queue.close()

    def test_characters_that_sqs_refuses_are_carried_all_the_same(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        letter = a_letter(domain, explanation="odd \ufffe \uffff \x00")
        assert queue.put([letter]) == [None]
        assert take(queue, [domain], 1)[0].letter == letter

    def test_domain_and_correlation_travel_as_attributes(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        letter = a_letter(domain)
        assert letter.event is not None
        queue.put([replace(letter, event=replace(letter.event, correlation_id="c-1"))])
        [message] = self.sqs.receive_message(
            QueueUrl=self.url(domain), MessageAttributeNames=["All"]
        )["Messages"]
        said = {k: v["StringValue"] for k, v in message["MessageAttributes"].items()}
        assert said == {
            "content_type": "application/json",
            "domain": domain,
            "correlation_id": "c-1",
        }

    def test_done_on_a_queue_that_was_deleted_is_ignored(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        queue.put([a_letter(domain), a_letter(domain, 1)])
        first, second = take(queue, [domain], 2)
        self.sqs.delete_queue(QueueUrl=self.url(domain))
        queue.done([first])
        queue.close()
        queue.done([second])

    def test_what_sqs_took_before_it_went_away_counts(
        self, queue: SqsDeadLetterQueue, domain: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue.put([a_letter(domain)])
        client = queue._queues.client
        send, sent = client.send_message_batch, []

        def send_once(**request: Any) -> Any:
            sent.append(request)
            if len(sent) == 1:
                return send(**request)
            raise EndpointConnectionError(endpoint_url="http://s3cret")

        monkeypatch.setattr(client, "send_message_batch", send_once)
        answers = queue.put(letters_of(domain, 25))
        assert answers[:10] == [None] * 10
        assert answers[10] == "SQS did not take it: no answer (EndpointConnectionError)"
        assert answers[20] == "SQS gave no answer to those before it"
        assert len(sent) == 2

    def test_no_domain_starves_the_others(self, queue: DeadLetterQueue, domain: str) -> None:
        other = f"{domain}-other"
        queue.put([*letters_of(domain, 20), a_letter(other)])
        seen = [queue.receive([domain, other], limit=5, wait=timedelta(seconds=2)) for _ in "12"]
        assert other in {receipt.domain for some in seen for receipt in some}

    def test_missing_credentials_are_told_with_the_cure(
        self, domain: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
        monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        with pytest.raises(DeadLetterQueueUnavailable, match="set AWS_ACCESS_KEY_ID"):
            self.open().put([a_letter(domain)])


def test_a_missing_region_is_told_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    with pytest.raises(DeadLetterQueueUnavailable, match="set aws_region"):
        SqsDeadLetterQueue().put([a_letter("order")])
