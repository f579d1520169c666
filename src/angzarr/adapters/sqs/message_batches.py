"""Sends the messages of many publishes to SQS in batches, and reads the answer for each.

kombu makes the request of each message and would send it at once. A `RequestCollector` keeps the
requests instead; `send_batches` sends them, in order for each queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from angzarr.adapters.sqs.letter_messages import BatchEntry, batches
from angzarr.adapters.sqs.refusals import SqsRefused, failure_of, is_of_its_queue, refusals

FAILURES: Final = (BotoCoreError, ClientError, OSError)

#: Bytes that every queue takes in one batch. What alone is larger goes alone: its queue decides.
_BATCH_BYTES: Final = 256 * 1024
#: From this HTTP status on SQS failed amid its work: the messages may be there.
_SERVER_FAULT: Final = 500


class SendAnswer(NamedTuple):
    """What became of one request: *error* None: it is on the queue; *lost*: it may be."""

    error: Exception | None = None
    lost: bool = False


class SendRequest(NamedTuple):
    """One message that SQS is to be sent, by its queue's client."""

    client: Any
    arguments: dict[str, Any]


class RequestCollector:
    """Stands in for a client of boto3: keeps what it is to send, and does all else."""

    def __init__(self, client: Any, requests: list[SendRequest]) -> None:
        self._client = client
        self._requests = requests

    def send_message(self, **arguments: Any) -> None:
        """Keep a message."""
        self._requests.append(SendRequest(self._client, arguments))

    def __getattr__(self, name: str) -> Any:
        """Whatever else the client does."""
        return getattr(self._client, name)


def send_batches(requests: Sequence[SendRequest]) -> list[SendAnswer]:
    """Send *requests* and answer for each, in their order.

    Once the service fails nothing more is sent: what was not tried has that error, and is not lost.
    """
    answers: dict[int, SendAnswer] = {}
    for client, url, batch in _batches_by_queue(requests):
        said = _send(client, url, batch)
        answers.update(zip((entry.at for entry in batch), said, strict=True))
        if (failed := _failure_in(said)) is not None:
            return [answers.get(at, SendAnswer(failed)) for at in range(len(requests))]
    return [answers[at] for at in range(len(requests))]


def _batches_by_queue(
    requests: Sequence[SendRequest],
) -> Iterator[tuple[Any, str, list[BatchEntry]]]:
    """The batches, each for one queue, with its client and its address; the earliest first."""
    queues: dict[str, tuple[Any, list[BatchEntry]]] = {}
    for at, (client, arguments) in enumerate(requests):
        rest = dict(arguments)
        url = rest.pop("QueueUrl")
        entry = BatchEntry(at, url, _size_of(rest), {"Id": str(at), **rest})
        queues.setdefault(url, (client, []))[1].append(entry)
    cut = [
        (client, url, batch)
        for url, (client, entries) in queues.items()
        for batch in batches(entries, _BATCH_BYTES)
    ]
    yield from sorted(cut, key=lambda one: one[2][0].at)


def _size_of(arguments: Mapping[str, Any]) -> int:
    """At least the bytes that SQS counts."""
    attributes = arguments.get("MessageAttributes")
    return len(arguments["MessageBody"].encode()) + (len(repr(attributes)) if attributes else 0)


def _send(client: Any, url: str, batch: Sequence[BatchEntry]) -> list[SendAnswer]:
    if len(batch) == 1:
        return [_send_one(client, url, batch[0])]
    entries = [entry.request for entry in batch]
    try:
        with refusals():
            reply = client.send_message_batch(QueueUrl=url, Entries=entries)
    except SqsRefused as error:
        if is_of_its_queue(error):
            return [SendAnswer(error)] * len(batch)
        return [_send_one(client, url, entry) for entry in batch]  # one of them is to blame
    except FAILURES as error:
        return [SendAnswer(error, _may_have_sent(error))] * len(batch)
    return _answers_in(reply, entries)


def _send_one(client: Any, url: str, entry: BatchEntry) -> SendAnswer:
    arguments = {name: value for name, value in entry.request.items() if name != "Id"}
    try:
        with refusals():
            client.send_message(QueueUrl=url, **arguments)
    except SqsRefused as error:
        return SendAnswer(error)
    except FAILURES as error:
        return SendAnswer(error, _may_have_sent(error))
    return SendAnswer()


def _answers_in(reply: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> list[SendAnswer]:
    """The answer for each of *entries*; what SQS did not speak of may be on the queue."""
    silent = OSError("SQS did not answer for this message of a batch")
    said = {entry["Id"]: SendAnswer() for entry in reply.get("Successful", ())}
    for entry in reply.get("Failed", ()):
        said[entry["Id"]] = SendAnswer(failure_of(entry))
    return [said.get(entry["Id"], SendAnswer(silent, lost=True)) for entry in entries]


def _failure_in(answers: Sequence[SendAnswer]) -> Exception | None:
    """The first failure of the service in *answers*."""
    errors = (one.error for one in answers if one.error is not None)
    return next((error for error in errors if not isinstance(error, SqsRefused)), None)


def _may_have_sent(error: Exception) -> bool:
    """False if SQS answered that it did not take the request."""
    if not isinstance(error, ClientError):
        return True
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", _SERVER_FAULT)
    return int(status) >= _SERVER_FAULT
