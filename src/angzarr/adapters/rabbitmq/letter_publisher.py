"""Publishes letters to RabbitMQ, mandatory and confirmed, many confirms waited for together."""

from __future__ import annotations

import hashlib
import itertools
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

import amqp

from angzarr.adapters.rabbitmq.link import (
    FAILURES,
    BrokerCluster,
    LetterConnection,
    connect,
    reason_of,
    told,
)
from angzarr.adapters.rabbitmq.queue_check import QueueCheck
from angzarr.dead_letters.codec import MAX_LETTER_BYTES, Form, encode
from angzarr.dead_letters.names import EXCHANGE, routing_key
from angzarr.dead_letters.queue import Outgoing, RawLetter, TooLarge

#: Letters sent before their confirms are waited for together.
_BATCH: Final = 100
#: Seconds after which an idle connection is not trusted with a letter.
_STALE: Final = 60.0
#: The longest text AMQP takes as a property, in bytes.
_SHORT_TEXT: Final = 255
_REFUSED: Final = "RabbitMQ refused it (nack): its queue is full or cannot take it now"
_LONG_TYPE: Final = f"its content type is longer than AMQP carries, {_SHORT_TEXT} bytes"
_UNROUTABLE: Final = "RabbitMQ returned it: no queue is bound for its domain"


class RabbitMQLetterPublisher:
    """Publishes with confirms; connects when needed, once more where the connection was dead.

    Safe from any thread; one puts at a time.
    """

    def __init__(
        self,
        cluster: BrokerCluster,
        timeout: float,
        form: Form,
        *,
        create_missing: bool,
        check: QueueCheck,
    ) -> None:
        self._cluster = cluster
        self._check = check
        self._create_missing = create_missing
        self._timeout = timeout
        self._form = form
        self._lock = threading.Lock()
        self._link: LetterConnection | None = None
        self._used_at = 0.0
        self._tags = itertools.count(1)
        self._awaited: set[int] = set()
        self._answers: dict[int, str | None] = {}
        self._returned: set[str] = set()

    def publish(self, letters: Sequence[Outgoing]) -> list[str | None]:
        """For each letter None once confirmed, else why not."""
        with self._lock:
            return [
                answer
                for start in range(0, len(letters), _BATCH)
                for answer in self._publish_batch(letters[start : start + _BATCH])
            ]

    def close(self) -> None:
        """Close the connection; the next letter opens another."""
        with self._lock:
            if self._link:
                self._link.close()
            self._link = None

    def leave(self) -> None:
        """Let go of a connection that a forked child inherited."""
        if self._link:
            self._link.leave()

    def _publish_batch(self, letters: Sequence[Outgoing]) -> list[str | None]:
        """Publish one batch; where one letter closes the channel, publish each by itself."""
        try:
            return self._on_a_live_link(letters)
        except amqp.exceptions.ChannelError as error:
            self._drop()
            if len(letters) == 1:
                told = f"RabbitMQ refused it: {reason_of(error)}"
                return [TooLarge(told) if _is_size(error) else told]
            return [self._publish_batch([letter])[0] for letter in letters]

    def _on_a_live_link(self, letters: Sequence[Outgoing]) -> list[str | None]:
        if time.monotonic() - self._used_at > _STALE:
            self._drop()
        reused = self._link is not None
        try:
            return self._send_bound(self._link or self._connect(), letters)
        except amqp.exceptions.ChannelError:
            raise
        except FAILURES:
            self._drop()
            if not reused:
                raise
        return self._send_bound(self._connect(), letters)

    def _send_bound(self, link: LetterConnection, letters: Sequence[Outgoing]) -> list[str | None]:
        """Send *letters*; a queue that was deleted meanwhile is declared anew, once."""
        answers = self._send(link, letters)
        lost = [at for at, answer in enumerate(answers) if answer == _UNROUTABLE]
        if lost and self._link is link:
            link.topology.forget()
            again = self._send(link, [letters[at] for at in lost])
            for at, answer in zip(lost, again, strict=True):
                answers[at] = answer
        return answers

    def _send(self, link: LetterConnection, letters: Sequence[Outgoing]) -> list[str | None]:
        self._awaited.clear()
        self._answers.clear()
        self._returned.clear()
        problems = [_problem(letter) or link.topology.problem(letter.domain) for letter in letters]
        with link.buffered():
            sent = [
                problem or self._send_one(link, letter)
                for letter, problem in zip(letters, problems, strict=True)
            ]
        self._wait(link)
        if self._awaited:  # its confirms could still come, and be taken for later ones
            self._drop()
        self._used_at = time.monotonic()
        return [one if isinstance(one, str) else self._answer(*one) for one in sent]

    def _send_one(self, link: LetterConnection, letter: Outgoing) -> tuple[int, str]:
        body, content_type = encode(letter, self._form)
        if len(body) > MAX_LETTER_BYTES:
            return self._unsent(f"no worker would read it: it has {len(body)} bytes")
        name = _message_id(letter)
        message = amqp.Message(body, content_type=content_type, delivery_mode=2, message_id=name)
        tag = next(self._tags)
        self._awaited.add(tag)
        link.channel.basic_publish(message, EXCHANGE, routing_key(letter.domain), mandatory=True)
        return tag, name

    def _unsent(self, why: str) -> tuple[int, str]:
        """Answer for a letter that RabbitMQ never sees, under a tag that it gives to none."""
        tag = -1 - len(self._answers)
        self._answers[tag] = TooLarge(why)
        return tag, ""

    def _wait(self, link: LetterConnection) -> None:
        deadline = time.monotonic() + self._timeout
        while self._awaited and (left := deadline - time.monotonic()) > 0:
            link.drain(left)

    def _answer(self, tag: int, name: str) -> str | None:
        if name in self._returned:
            return _UNROUTABLE
        return self._answers.get(tag, f"RabbitMQ did not confirm it within {self._timeout:g} s")

    def _connect(self) -> LetterConnection:
        with told(self._cluster):
            link = connect(
                self._cluster,
                timeout=self._timeout,
                create_missing=self._create_missing,
                check=self._check,
            )
            link.channel.confirm_select()
        link.channel.events["basic_ack"].add(self._on_ack)
        link.channel.events["basic_nack"].add(self._on_nack)
        link.channel.events["basic_return"].add(self._on_return)
        self._tags = itertools.count(1)
        self._link = link
        return link

    def _on_ack(self, tag: int, multiple: bool) -> None:  # noqa: FBT001  called by py-amqp
        self._settle(tag, None, multiple=multiple)

    def _on_nack(self, tag: int, multiple: bool) -> None:  # noqa: FBT001  called by py-amqp
        self._settle(tag, _REFUSED, multiple=multiple)

    def _on_return(self, _why: object, _exchange: str, _key: str, message: Any) -> None:
        self._returned.add(message.properties["message_id"])

    def _settle(self, tag: int, answer: str | None, *, multiple: bool) -> None:
        settled = {one for one in self._awaited if one <= tag} if multiple else {tag}
        settled &= self._awaited
        self._awaited -= settled
        self._answers.update(dict.fromkeys(settled, answer))

    def _drop(self) -> None:
        if self._link:
            self._link.cut()
        self._link = None


def _is_size(error: amqp.exceptions.ChannelError) -> bool:
    """True if *error* is the answer to a message of more than `max_message_size` bytes.

    It is the one precondition of publishing that a letter can fail: it has no expiration, no user.
    """
    failed = isinstance(error, amqp.exceptions.PreconditionFailed)
    return failed and error.method_sig == amqp.spec.Basic.Publish


def _problem(letter: Outgoing) -> str | None:
    """Say what AMQP cannot carry, which only bytes of others can hold."""
    if (
        isinstance(letter, RawLetter)
        and letter.record is None
        and len(letter.content_type.encode("utf-8", "surrogatepass")) > _SHORT_TEXT
    ):
        return TooLarge(_LONG_TYPE)
    return None


def _message_id(letter: Outgoing) -> str:
    raw = letter.id.encode("utf-8", "surrogatepass")
    if len(raw) <= _SHORT_TEXT and letter.id.isprintable():
        return letter.id
    return hashlib.sha256(raw).hexdigest()
