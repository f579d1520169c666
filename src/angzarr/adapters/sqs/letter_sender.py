"""Sends letters in batches to SQS queues or SNS topics, and reads each entry's answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from botocore.exceptions import BotoCoreError

from angzarr.adapters.sqs.client import FAILURES, is_gone, reason_of
from angzarr.adapters.sqs.letter_messages import BatchEntry, batches, entry_of, problem_of
from angzarr.adapters.sqs.queues import SqsQueues
from angzarr.adapters.sqs.topics import SnsTopics
from angzarr.dead_letters.codec import Form
from angzarr.dead_letters.queue import Outgoing, TooLarge
from angzarr.errors import DeadLetterQueueUnavailable

#: Bytes of body and attributes that SQS takes, in one message and in one batch.
LIMIT: Final = 1024 * 1024

_REFUSALS: Final = (*FAILURES, DeadLetterQueueUnavailable)


class Outlet(Protocol):
    """Where batches go; raises what boto3 raises, or DeadLetterQueueUnavailable with the cure."""

    #: Who answers.
    service: str
    #: What it calls the text of a message.
    body: str
    fifo: bool

    def name(self, domain: str) -> str:
        """The name that letters of *domain* go to."""

    def limit(self, domain: str) -> int:
        """The number of bytes that it takes, in one letter and in one batch."""

    def send(self, domain: str, requests: list[Any]) -> Mapping[str, Any]:
        """Send one batch and return the reply."""


class QueueOutlet:
    """Sends to each domain's queue."""

    service = "SQS"
    body = "MessageBody"

    def __init__(self, queues: SqsQueues) -> None:
        self._queues = queues
        self.fifo = queues.fifo
        self.name = queues.name

    def limit(self, _domain: str) -> int:
        """The most that SQS takes."""
        return LIMIT

    def send(self, domain: str, requests: list[Any]) -> Mapping[str, Any]:
        """Send one batch, once more where the queue was deleted."""
        client = self._queues.client
        try:
            return client.send_message_batch(QueueUrl=self._queues.url(domain), Entries=requests)
        except FAILURES as error:
            if not self._queues.forget_if_gone(domain, error):
                raise
            return client.send_message_batch(QueueUrl=self._queues.url(domain), Entries=requests)


class LetterSender:
    """Sends; safe from any thread."""

    def __init__(self, outlet: Outlet, form: Form) -> None:
        self._outlet = outlet
        self._form = form

    def send(self, letters: Sequence[Outgoing]) -> list[str | None]:
        """For each letter None once the outlet has it, else why not.

        Raises what the outlet raises where it answered to no batch at all.
        """
        answers: list[str | None] = [""] * len(letters)
        by_name: dict[str, list[BatchEntry]] = {}
        for at, letter in enumerate(letters):
            if why := problem_of(letter):
                answers[at] = TooLarge(why)
                continue
            entry = entry_of(at, letter, self._form, body=self._outlet.body, fifo=self._outlet.fifo)
            by_name.setdefault(self._outlet.name(letter.domain), []).append(entry)
        failures: list[Exception] = []
        for entries in by_name.values():
            self._send_all(entries, answers, failures)
        if failures and None not in answers:
            raise failures[0]
        return answers

    def _send_all(
        self, entries: list[BatchEntry], answers: list[str | None], failures: list[Exception]
    ) -> None:
        """Send what goes to one name; note each entry's answer, and failures."""
        if _are_mute(failures):
            return self._note(entries, self._untried(), answers)
        try:
            limit = self._outlet.limit(entries[0].domain)
        except _REFUSALS as error:
            failures.append(error)
            return self._note(entries, self._not_taken(error), answers)
        for entry in entries:
            if entry.size > limit:
                told = f"{self._outlet.service} takes at most {limit} bytes, the letter has"
                answers[entry.at] = TooLarge(f"{told} {entry.size}")
        for batch in batches([entry for entry in entries if entry.size <= limit], limit):
            if _are_mute(failures):
                self._note(batch, self._untried(), answers)
            elif failure := self._send_batch(batch, answers):
                failures.append(failure)
        return None

    def _note(self, batch: Sequence[BatchEntry], why: str, answers: list[str | None]) -> None:
        for entry in batch:
            answers[entry.at] = why

    def _untried(self) -> str:
        return f"{self._outlet.service} gave no answer to those before it"

    def _not_taken(self, error: Exception) -> str:
        return f"{self._outlet.service} did not take it: {reason_of(error)}"

    def _send_batch(
        self, batch: Sequence[BatchEntry], answers: list[str | None]
    ) -> Exception | None:
        """Note the answers; return the failure where there was none."""
        requests = [entry.request for entry in batch]
        try:
            reply = self._outlet.send(batch[0].domain, requests)
        except _REFUSALS as error:
            self._note(batch, self._not_taken(error), answers)
            return error
        refused = self._refusals(requests, reply)
        for entry in batch:
            answers[entry.at] = refused.get(entry.request["Id"])
        return None

    def _refusal(self, code: str, said: str) -> str:
        """The reason why an entry was refused; a queue's own limit may be lower than SQS'."""
        told = f"{self._outlet.service} refused it: {code} {said}".strip()
        return TooLarge(told) if "must be shorter than" in said else told

    def _refusals(self, requests: Sequence[Any], reply: Mapping[str, Any]) -> dict[str, str]:
        """Why each entry was refused, or that nothing was said of it."""
        taken = {entry["Id"] for entry in reply.get("Successful", ())}
        said = {
            entry["Id"]: self._refusal(entry["Code"], entry.get("Message", ""))
            for entry in reply.get("Failed", ())
        }
        silent = f"{self._outlet.service} did not answer for it"
        unanswered = {one["Id"]: silent for one in requests}
        return {id: why for id, why in (unanswered | said).items() if id not in taken}  # noqa: A001  AWS's word


def _are_mute(failures: Sequence[Exception]) -> bool:
    """True if the last batches got no answer: each further batch would wait as long."""
    return bool(failures) and isinstance(failures[-1], BotoCoreError)


class TopicOutlet:
    """Sends to each domain's topic, which it has looked at before."""

    service = "SNS"
    body = "Message"

    def __init__(self, topics: SnsTopics) -> None:
        self._topics = topics
        self.fifo = topics.queues.fifo
        self.name = topics.queues.name

    def limit(self, domain: str) -> int:
        """The most that the topic takes and its queue can keep."""
        return self._topics.ready(domain).limit

    def send(self, domain: str, requests: list[Any]) -> Mapping[str, Any]:
        """Publish one batch, once more where the topic was deleted."""
        try:
            return self._publish(domain, requests)
        except FAILURES as error:
            if not is_gone(error):
                raise
            return self._publish(domain, requests)

    def _publish(self, domain: str, requests: list[Any]) -> Mapping[str, Any]:
        arn = self._topics.ready(domain).arn
        try:
            reply: Mapping[str, Any] = self._topics.client.publish_batch(
                TopicArn=arn, PublishBatchRequestEntries=requests
            )
        except BaseException:
            self._topics.doubt(domain)
            raise
        if reply.get("Failed"):
            self._topics.doubt(domain)
        return reply
