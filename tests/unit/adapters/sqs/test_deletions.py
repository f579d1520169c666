"""What was acknowledged is deleted in batches; what fails is tried singly, and then comes again."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from angzarr.adapters.sqs.deletions import Deletion, Deletions


class Queues:
    """Stands in for the clients of all queues, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.let_go: list[str] = []
        self.failed: list[str] = []
        self.answer: Exception | None = None
        self.answer_to_one: Exception | None = None
        self.deletions = Deletions(self.client_of, self.delete_one, self.let_go.append)

    def client_of(self, queue: str) -> Any:
        self.asked.append(queue)
        return self

    def delete_message_batch(self, **what: Any) -> Any:
        handles = {entry["Id"]: entry["ReceiptHandle"] for entry in what["Entries"]}
        self.asked[-1] = (self.asked[-1], what["QueueUrl"], list(handles.values()))
        if self.answer:
            raise self.answer
        return {"Failed": [{"Id": n} for n, one in handles.items() if one in self.failed]}

    def delete_one(self, tag: str) -> None:
        self.asked.append(tag)
        if self.answer_to_one:
            raise self.answer_to_one
        self.let_go.append(tag)

    def add(self, *numbers: int, queue: str = "q") -> None:
        for n in numbers:
            self.deletions.add(Deletion(f"tag {n}", queue, f"http://{queue}", f"handle {n}"))


@pytest.fixture
def queues() -> Queues:
    return Queues()


def handles(*numbers: int) -> list[str]:
    return [f"handle {n}" for n in numbers]


def tags(*numbers: int) -> list[str]:
    return [f"tag {n}" for n in numbers]


def test_a_call_deletes_ten_messages_of_one_queue(queues):
    queues.add(*range(12))
    queues.add(20, 21, queue="other")
    assert len(queues.deletions) == 14
    queues.deletions.send()
    assert queues.asked == [
        ("other", "http://other", handles(20, 21)),
        ("q", "http://q", handles(*range(10))),
        ("q", "http://q", handles(10, 11)),
    ]
    assert sorted(queues.let_go) == sorted(tags(*range(12), 20, 21))
    assert len(queues.deletions) == 0


def test_one_alone_is_deleted_by_itself(queues):
    queues.add(1)
    queues.deletions.send()
    assert queues.asked == queues.let_go == tags(1)


def test_an_entry_that_fails_is_tried_singly(queues):
    queues.add(1, 2, 3)
    queues.failed = handles(2)
    queues.deletions.send()
    assert queues.asked[1:] == tags(2)
    assert queues.let_go == tags(1, 3, 2)


def test_a_call_that_is_refused_is_made_for_each_message(queues):
    """A server that knows no batches answers so."""
    queues.add(1, 2)
    queues.answer = ClientError({"Error": {"Code": "UnsupportedOperation"}}, "DeleteMessageBatch")
    queues.deletions.send()
    assert queues.asked[1:] == queues.let_go == tags(1, 2)


def test_what_an_absent_server_does_not_delete_holds_no_place_and_is_reported_once(queues, caplog):
    queues.answer = queues.answer_to_one = EndpointConnectionError(endpoint_url="http://q")
    for first in (1, 4):
        queues.add(first, first + 1, first + 2)
        queues.deletions.send()
    assert len(queues.asked) == 2, "no message is tried singly: each would wait as long"
    assert queues.let_go == tags(*range(1, 7))
    assert caplog.text.count("sqs_not_deleted: 3 messages") == 1


def test_a_server_that_goes_away_between_two_messages_is_not_waited_for_again(queues, caplog):
    queues.failed = handles(1, 2, 3)
    queues.answer_to_one = EndpointConnectionError(endpoint_url="http://q")
    queues.add(1, 2, 3)
    queues.deletions.send()
    assert queues.asked[1:] == tags(1)
    assert queues.let_go == tags(1, 2, 3)
    assert "sqs_not_deleted" in caplog.text


def test_a_queue_that_is_not_predefined_ends_no_loop(queues, caplog):
    """A message of another may name any queue in its routing key."""
    queues.client_of = lambda _queue: 1 / 0
    queues.deletions = Deletions(queues.client_of, queues.delete_one, queues.let_go.append)
    queues.answer_to_one = LookupError("no such queue")
    queues.add(1, 2)
    queues.deletions.send()
    assert queues.let_go == tags(1, 2)
    assert "sqs_not_deleted: 1 messages come again as duplicates: no such queue" in caplog.text
