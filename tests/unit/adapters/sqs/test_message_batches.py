"""Batches of messages for SQS: each request has one answer, in order for each queue."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, ParamValidationError
from hypothesis import given
from hypothesis import strategies as st

from angzarr.adapters.sqs.message_batches import RequestCollector, send_batches
from angzarr.adapters.sqs.refusals import SqsRefused

#: What SQS says of one entry.
TAKEN, TOO_LONG, THROTTLED, NOT_SAID = "taken", "MessageTooLong", "RequestThrottled", "not said"


def away(code="ServiceUnavailable", status=503):
    told = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(told, "SendMessageBatch")


class Sqs:
    """A client whose answers are said before; keeps what it took, by queue."""

    def __init__(self, says=None, *, fails_at=None, error=None):
        self.says = says or {}
        self.fails_at, self.error = fails_at, error
        self.taken: dict[str, list[str]] = {}
        self.requests: list[int] = []

    def send_message(self, **arguments):
        self._begin(1)
        self._take(arguments["QueueUrl"], arguments)

    def send_message_batch(self, *, QueueUrl, Entries):  # noqa: N803 - boto3's names
        assert 1 < len(Entries) <= 10
        assert len({one["Id"] for one in Entries}) == len(Entries)
        assert sum(len(one["MessageBody"]) for one in Entries) <= 256 * 1024
        self._begin(len(Entries))
        reply = {"Successful": [], "Failed": []}
        for entry in Entries:
            said = self.says.get(entry["MessageBody"], TAKEN)
            if said == TAKEN:
                self._take(QueueUrl, entry)
                reply["Successful"].append({"Id": entry["Id"]})
            elif said != NOT_SAID:
                fault = said == TOO_LONG
                reply["Failed"].append({"Id": entry["Id"], "Code": said, "SenderFault": fault})
        return reply

    def _begin(self, count):
        self.requests.append(count)
        if self.fails_at is not None and len(self.requests) > self.fails_at:
            raise self.error

    def _take(self, url, arguments):
        self.taken.setdefault(url, []).append(arguments["MessageBody"])


def collect(client, messages):
    requests = []
    collector = RequestCollector(client, requests)
    for queue, body in messages:
        collector.send_message(QueueUrl=queue, MessageBody=body)
    return requests


def send(client, messages):
    return send_batches(collect(client, messages))


ONE = "https://sqs/one"


@given(st.lists(st.tuples(st.sampled_from(["one", "two", "three"]), st.integers(1, 120_000))))
def test_each_message_is_sent_once_in_its_queues_order(given_ones):
    messages = [(queue, f"{at}:".ljust(size, "x")) for at, (queue, size) in enumerate(given_ones)]
    client = Sqs()
    assert [one.error for one in send(client, messages)] == [None] * len(messages)
    for queue in ("one", "two", "three"):
        assert client.taken.get(queue, []) == [body for name, body in messages if name == queue]


@given(st.lists(st.sampled_from([TAKEN, TOO_LONG, THROTTLED, NOT_SAID]), min_size=2, max_size=30))
def test_an_answer_says_what_became_of_its_message(said):
    bodies = [str(at) for at in range(len(said))]
    client = Sqs(dict(zip(bodies, said, strict=True)))
    answers = send(client, [(ONE, body) for body in bodies])
    for body, answer in zip(bodies, answers, strict=True):
        if answer.error is None:
            assert body in client.taken[ONE]
        elif not answer.lost:
            assert body not in client.taken.get(ONE, [])


def test_a_refusal_of_one_stops_no_other():
    client = Sqs({"3": TOO_LONG})
    answers = send(client, [(ONE, str(n)) for n in range(25)])
    assert [at for at, one in enumerate(answers) if one.error is not None] == [3]
    assert isinstance(answers[3].error, SqsRefused)
    assert client.requests == [10, 10, 5]


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (away(), True),
        (EndpointConnectionError(endpoint_url="https://sqs"), True),
        (away("ThrottlingException", 400), False),
    ],
)
def test_a_failure_of_the_service_ends_the_sending_and_nothing_more_is_tried(error, lost):
    client = Sqs(fails_at=1, error=error)
    answers = send(client, [(ONE, str(n)) for n in range(30)])
    assert client.requests == [10, 10]
    assert [one.error for one in answers] == [None] * 10 + [error] * 20
    assert [one.lost for one in answers] == [False] * 10 + [lost] * 10 + [False] * 10


def test_a_batch_that_is_refused_as_a_whole_goes_one_by_one():
    class Picky(Sqs):
        def send_message_batch(self, **_arguments):
            raise ParamValidationError(report="an attribute")

        def send_message(self, **arguments):
            if arguments["MessageBody"] == "3":
                raise ParamValidationError(report="an attribute")
            super().send_message(**arguments)

    client = Picky()
    answers = send(client, [(ONE, str(n)) for n in range(10)])
    assert [at for at, one in enumerate(answers) if one.error is not None] == [3]
    assert client.taken[ONE] == [str(n) for n in range(10) if n != 3]


def test_a_queue_that_is_gone_is_not_asked_for_each_message():
    gone = away("AWS.SimpleQueueService.NonExistentQueue", 400)
    client = Sqs(fails_at=0, error=gone)
    answers = send(client, [(ONE, str(n)) for n in range(10)])
    assert client.requests == [10]
    assert {(type(one.error), one.lost) for one in answers} == {(SqsRefused, False)}


def test_a_large_message_goes_alone():
    client = Sqs()
    send(client, [(ONE, "x" * size) for size in (10, 300_000, 10, 10)])
    assert client.requests == [1, 1, 2]


def test_a_collector_does_all_else_as_its_client():
    class Client:
        def list_queues(self):
            return "its own"

    assert RequestCollector(Client(), []).list_queues() == "its own"
