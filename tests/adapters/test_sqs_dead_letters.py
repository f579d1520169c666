from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from adapters.aws_letters import AwsLetters, SizedAwsLetters
from angzarr.adapters.sqs.dead_letters import SqsDeadLetterQueue
from angzarr.adapters.sqs.letter_sender import LIMIT
from angzarr.dead_letters.codec import PROTOBUF_CONTENT_TYPE, Form
from angzarr.dead_letters.depth import QueueDepth
from angzarr.dead_letters.names import queue_name
from angzarr.dead_letters.queue import DeadLetterQueue, TooLarge
from angzarr.errors import DeadLetterQueueUnavailable
from contracts.dead_letters import (
    ChoosyRawLettersContract,
    CountedLettersContract,
    ForeignRecordsContract,
    ServerDeadLetterQueueContract,
    a_letter,
    ids,
    letters_of,
    take,
)
from contracts.ordered_letters import OrderedLettersContract
from polling import wait_until


class TestSqsDeadLetterQueue(
    SizedAwsLetters,
    ForeignRecordsContract,
    ChoosyRawLettersContract,
    CountedLettersContract,
    ServerDeadLetterQueueContract,
):
    limit = LIMIT
    told_limit = "at most 1048576 bytes"
    several_to_a_request = 400_000

    def test_the_queue_keeps_letters_as_long_as_sqs_can(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        queue.put([a_letter(domain)])
        kept = self.sqs.get_queue_attributes(
            QueueUrl=self.url(domain), AttributeNames=["MessageRetentionPeriod"]
        )
        assert kept["Attributes"]["MessageRetentionPeriod"] == str(14 * 24 * 3600)

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
        held = ids(take(first, [domain], 1))  # nobody has the receipt in hand any more
        assert ids(take(second, [domain], 1)) == held
        first.close()
        second.close()

    def test_a_letter_in_hand_for_longer_than_its_lease_comes_to_nobody_else(
        self, domain: str
    ) -> None:
        first, second = self.open(visibility=timedelta(seconds=2)), self.open()
        first.put([a_letter(domain)])
        held = take(first, [domain], 1)
        assert second.receive([domain], limit=1, wait=timedelta(seconds=2.5)) == []
        first.done(held)
        assert second.receive([domain], limit=1, wait=timedelta(0)) == []
        first.close()
        second.close()

    def test_a_letter_done_is_renewed_no_more(
        self, domain: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue = self.open(visibility=timedelta(seconds=1))
        renewed = self.renewals(queue, monkeypatch)
        queue.put(letters_of(domain, 2))
        taken = take(queue, [domain], 2)
        wait_until(lambda: len(renewed) >= 2)
        queue.done(taken)
        wait_until(lambda: queue._receiver._renewal._thread is None)
        so_far = len(renewed)
        assert {entry["Id"] for entries in renewed for entry in entries} == {"0", "1"}
        assert queue._receiver._leases.renew() is None
        assert len(renewed) == so_far
        queue.close()

    def test_its_depth_counts_what_is_in_hand_among_what_it_keeps(self, domain: str) -> None:
        queue = self.open()
        queue.put([a_letter(domain, n) for n in range(3)])
        held = take(queue, [domain], 1)
        wait_until(lambda: queue.depths([domain]) == {domain: QueueDepth(2, 3)}, "one in hand")
        queue.done(held)
        wait_until(lambda: queue.depths([domain]) == {domain: QueueDepth(2, 2)}, "it is gone")
        queue.close()

    def test_a_renewal_that_fails_is_tried_again_within_the_lease(
        self, domain: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        queue, other = self.open(visibility=timedelta(seconds=2)), self.open()
        queue.put([a_letter(domain)])
        failures = [EndpointConnectionError(endpoint_url="http://s3cret"), OSError("a bug")]
        renewed = self.renewals(queue, monkeypatch, failures)
        held = take(queue, [domain], 1)
        wait_until(lambda: len(renewed) >= 2)
        assert other.receive([domain], limit=1, wait=timedelta(0)) == []
        assert "1 dead letters may come again: no answer" in caplog.text
        assert "s3cret" not in caplog.text
        queue.done(held)
        queue.close()
        other.close()

    def renewals(
        self,
        queue: SqsDeadLetterQueue,
        monkeypatch: pytest.MonkeyPatch,
        failures: list[Exception] | None = None,
    ) -> list[Any]:
        """Return a list that grows with each renewal SQS is asked for; *failures* come first."""
        asked: list[Any] = []
        real = queue._receiver._leases._change

        def change(url: str, entries: list[Any]) -> Any:
            if failures:
                raise failures.pop()
            asked.append(entries)
            return real(url, entries)

        monkeypatch.setattr(queue._receiver._leases, "_change", change)
        return asked

    def test_a_queue_that_is_missing_and_not_to_be_made_is_told_with_the_cure(
        self, domain: str
    ) -> None:
        queue = self.open(create_missing=False)
        told = f"the SQS queue {queue_name(domain)} does not exist: create it"
        with pytest.raises(DeadLetterQueueUnavailable, match=told):
            queue.put([a_letter(domain)])
        with pytest.raises(DeadLetterQueueUnavailable, match=told):
            queue.receive([domain], limit=1, wait=timedelta(0))
        self.make_queue(domain)
        assert queue.put([a_letter(domain)]) == [None]
        queue.close()

    def test_a_missing_queue_keeps_no_letters_of_others_back(
        self, domain: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        queue, missing = self.open(create_missing=False), f"{domain}-missing"
        self.make_queue(domain)
        answers = queue.put([a_letter(missing), a_letter(domain), a_letter(missing)])
        assert [answer is None for answer in answers] == [False, True, False]
        assert "does not exist" in str(answers[0])
        assert ids(take(queue, [missing, domain], 1)) == [f"{domain}-0"]
        queue.put([a_letter(domain, 1)])
        assert ids(take(queue, [domain, missing], 1)) == [f"{domain}-1"]
        queue.close()

    def test_a_queue_that_could_lose_letters_is_told_once(
        self, domain: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        self.make_queue(f"{domain}-aside")
        arn = self.attributes(f"{domain}-aside")["QueueArn"]
        redrive = f'{{"deadLetterTargetArn": "{arn}", "maxReceiveCount": 5}}'
        self.make_queue(domain, MessageRetentionPeriod="345600", RedrivePolicy=redrive)
        queue = self.open()
        queue.put([a_letter(domain), a_letter(f"{domain}-aside")])
        queue._queues._urls.clear()
        queue.put([a_letter(domain, 1)])
        told = (
            f"dead_letters_at_risk: SQS could lose or move dead letters. {queue_name(domain)}:"
            " MessageRetentionPeriod=345600 (set it to 1209600),"
            f" a letter received 5 times is moved to {queue_name(domain)}-aside"
            " (remove its redrive policy)"
        )
        warned = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
        assert warned == [told]
        assert self.attributes(domain)["MessageRetentionPeriod"] == "345600", "it is another's"
        queue.close()

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

    def test_a_profile_that_is_nowhere_is_told_with_the_cure(self, domain: str) -> None:
        with pytest.raises(DeadLetterQueueUnavailable, match="fix aws_profile"):
            self.open(profile="nowhere").put([a_letter(domain)])

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


class TestFifoSqsDeadLetterQueue(
    AwsLetters, ForeignRecordsContract, ChoosyRawLettersContract, OrderedLettersContract
):
    fifo = True
