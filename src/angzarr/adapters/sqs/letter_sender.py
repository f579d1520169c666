"""Sends letters to SQS in batches, within its limits, and reads the answer for each entry."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from botocore.exceptions import BotoCoreError

from angzarr.adapters.sqs.queues import CONTENT_TYPE, FAILURES, Queues, reason_of
from angzarr.dead_letters.codec import JSON_CONTENT_TYPE, Form, encode
from angzarr.dead_letters.letter import DeadLetter
from angzarr.dead_letters.names import queue_name
from angzarr.dead_letters.queue import TooLarge

if TYPE_CHECKING:
    from mypy_boto3_sqs.type_defs import SendMessageBatchRequestEntryTypeDef

#: Bytes of body and attributes that SQS takes, in one message and in one batch.
LIMIT: Final = 1024 * 1024
#: Messages that SQS takes in one batch.
BATCH: Final = 10

#: Characters that SQS refuses: what XML 1.0 cannot hold.
_ILLEGAL: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class _Entry(NamedTuple):
    at: int
    domain: str
    size: int
    request: SendMessageBatchRequestEntryTypeDef


class LetterSender:
    """Sends; safe from any thread."""

    def __init__(self, queues: Queues, form: Form) -> None:
        self._queues = queues
        self._form = form

    def send(self, letters: Sequence[DeadLetter]) -> list[str | None]:
        """Return for each letter None once SQS has it, else why not.

        Raises what boto3 raises where SQS answered to no batch at all.
        """
        answers: list[str | None] = [None] * len(letters)
        by_queue: dict[str, list[_Entry]] = {}
        for at, letter in enumerate(letters):
            entry = self._entry(at, letter)
            if entry.size > LIMIT:
                told = f"SQS takes at most {LIMIT} bytes, the letter has {entry.size}"
                answers[at] = TooLarge(told)
            else:
                by_queue.setdefault(queue_name(letter.domain), []).append(entry)
        self._send_all([batch for one in by_queue.values() for batch in batches(one)], answers)
        return answers

    def _send_all(self, todo: Sequence[Sequence[_Entry]], answers: list[str | None]) -> None:
        failures: list[Exception] = []
        for batch in todo:
            if failures and isinstance(failures[-1], BotoCoreError):
                self._note(batch, "SQS gave no answer to those before it", answers)
            elif failure := self._send_batch(batch, answers):
                failures.append(failure)
        settled = [answers[entry.at] is None for batch in todo for entry in batch]
        if failures and not any(settled):
            raise failures[0]

    def _note(self, batch: Sequence[_Entry], why: str, answers: list[str | None]) -> None:
        for entry in batch:
            answers[entry.at] = why

    def _send_batch(self, batch: Sequence[_Entry], answers: list[str | None]) -> Exception | None:
        """Note SQS's answers; return the failure where it gave none."""
        try:
            refused = self._ask(batch[0].domain, [entry.request for entry in batch])
        except FAILURES as error:
            self._note(batch, f"SQS did not take it: {reason_of(error)}", answers)
            return error
        for entry in batch:
            answers[entry.at] = refused.get(entry.request["Id"])
        return None

    def _ask(
        self, domain: str, requests: list[SendMessageBatchRequestEntryTypeDef]
    ) -> dict[str, str]:
        """Send one batch, once more where the queue was deleted; return refusals by entry."""
        client = self._queues.client
        try:
            reply = client.send_message_batch(QueueUrl=self._queues.url(domain), Entries=requests)
        except FAILURES as error:
            if not self._queues.forget_if_gone(domain, error):
                raise
            reply = client.send_message_batch(QueueUrl=self._queues.url(domain), Entries=requests)
        taken = {entry["Id"] for entry in reply.get("Successful", ())}
        said = {
            entry["Id"]: _refusal(entry["Code"], entry.get("Message", ""))
            for entry in reply.get("Failed", ())
        }
        unanswered = {one["Id"]: "SQS did not answer for it" for one in requests}
        return {id: why for id, why in (unanswered | said).items() if id not in taken}  # noqa: A001  SQS's word

    def _entry(self, at: int, letter: DeadLetter) -> _Entry:
        text, content_type = as_text(letter, self._form)
        facts = {
            CONTENT_TYPE: content_type,
            "domain": letter.domain,
            "correlation_id": (letter.event.correlation_id or "") if letter.event else "",
        }
        attributes: dict[str, Any] = {
            name: {"DataType": "String", "StringValue": value}
            for name, value in facts.items()
            if value and not _ILLEGAL.search(value)
        }
        size = len(text.encode()) + sum(
            len(name) + len("String") + len(value["StringValue"].encode())
            for name, value in attributes.items()
        )
        request: SendMessageBatchRequestEntryTypeDef = {
            "Id": str(at),
            "MessageBody": text,
            "MessageAttributes": attributes,
        }
        return _Entry(at, letter.domain, size, request)


def _refusal(code: str, said: str) -> str:
    """Return why SQS refused an entry; a queue may take less than SQS does, by its own setting."""
    told = f"SQS refused it: {code} {said}".strip()
    return TooLarge(told) if "must be shorter than" in said else told


def as_text(letter: DeadLetter, form: Form) -> tuple[str, str]:
    """Return *letter* as text and its content type: JSON, or base64 of the binary form.

    Binary, too, where the JSON has a character that SQS refuses.
    """
    body, content_type = encode(letter, form)
    if content_type == JSON_CONTENT_TYPE:
        text = body.decode()
        if not _ILLEGAL.search(text):
            return text, content_type
        body, content_type = encode(letter, Form.BINARY)
    return base64.b64encode(body).decode(), content_type


def batches(entries: Sequence[_Entry]) -> Iterator[list[_Entry]]:
    """Cut *entries*, in order, into batches that SQS takes."""
    batch: list[_Entry] = []
    size = 0
    for entry in entries:
        if batch and (len(batch) == BATCH or size + entry.size > LIMIT):
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += entry.size
    if batch:
        yield batch
