"""Publishes letters to Pub/Sub and waits for each one's message id or error."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from google.api_core.exceptions import Aborted, DeadlineExceeded, InvalidArgument, NotFound
from google.cloud.pubsub_v1.publisher.exceptions import MessageTooLargeError

from angzarr.adapters.pubsub.client import AWAY, FAILURES, Clients, reason_of
from angzarr.adapters.pubsub.topics import Topics
from angzarr.dead_letters.codec import Form, correlation_id, encode, partition_key
from angzarr.dead_letters.names import queue_name
from angzarr.dead_letters.queue import Outgoing, RawLetter, TooLarge

if TYPE_CHECKING:
    from google.cloud.pubsub_v1 import PublisherClient

#: The name of the message attribute that tells a letter's form.
CONTENT_TYPE: Final = "content_type"
#: Bytes of a message and its request that Pub/Sub takes.
LIMIT: Final = 10_000_000
#: Bytes of an attribute's value, and of an ordering key, that Pub/Sub takes.
_SHORT: Final = 1_024
#: Seconds on top of the time-out in which the client says that it has run out.
_GRACE: Final = 1.0
_LONG_TYPE: Final = (
    f"its content type is not text, or longer than the {_SHORT} bytes that Pub/Sub carries"
)
_OVERTAKING: Final = "Pub/Sub did not take the letter before it, whose ordering key it shares"


class PubSubLetterPublisher:
    """Publishes; safe from any thread."""

    def __init__(self, clients: Clients, topics: Topics, form: Form) -> None:
        self._clients = clients
        self._topics = topics
        self._form = form

    def publish(self, letters: Sequence[Outgoing]) -> list[str | None]:
        """For each letter None once Pub/Sub has it, else why not.

        Raises the client's error where no letter got an answer.
        """
        errors = self._errors(letters)
        self._again(letters, errors)
        if all(isinstance(error, AWAY) for error in errors):
            raise errors[0]
        return [_answer(error) for error in errors]

    def _errors(self, letters: Sequence[Outgoing]) -> list[Any]:
        """The problem of each letter, None once it is published."""
        refused = self._topics.ensure({queue_name(letter.domain) for letter in letters})
        client = self._clients.publisher
        sent = [
            refused.get(queue_name(letter.domain)) or self._send(client, letter)
            for letter in letters
        ]
        deadline = time.monotonic() + self._clients.service.timeout + _GRACE
        errors = [_awaited(one, deadline) for one in sent]
        self._resume(client, (one for one, error in zip(letters, errors, strict=True) if error))
        return errors

    def _again(self, letters: Sequence[Outgoing], errors: list[Any]) -> None:
        """Publish once more, alone, what may have been refused for another's sake.

        A topic that was deleted is made anew; a batch is refused as a whole.
        """
        for at, letter in enumerate(letters):
            if isinstance(errors[at], NotFound):
                self._topics.forget(queue_name(letter.domain))
            elif not isinstance(errors[at], (InvalidArgument, Aborted)):
                continue
            (errors[at],) = self._errors([letter])
            if isinstance(errors[at], AWAY):
                return

    def _send(self, client: PublisherClient, letter: Outgoing) -> Any:
        """The future of *letter*'s message id, or what is against it at once."""
        encoded = encode(letter, self._form)
        if isinstance(letter, RawLetter) and not _fits(encoded.content_type):
            return TooLarge(_LONG_TYPE)
        facts = {
            CONTENT_TYPE: encoded.content_type,
            "domain": letter.domain,
            "correlation_id": correlation_id(letter),
        }
        attributes = {name: value for name, value in facts.items() if value and _fits(value)}
        topic, key = self._clients.service.topic(queue_name(letter.domain)), self._key(letter)
        try:
            return client.publish(topic, encoded.body, key, **attributes)
        except MessageTooLargeError:
            told = f"Pub/Sub takes at most {LIMIT} bytes, the letter has {len(encoded.body)}"
            return TooLarge(told)
        except AssertionError:
            # The client's word between the refusal of a request and what follows from it: the
            # pause of the key, or for letters without one a new batch, a few milliseconds later.
            return _OVERTAKING if key else Aborted("the letter before it was just refused")
        except RuntimeError as error:  # no more threads, or closed by another one
            return f"Pub/Sub's client did not take it: {error}"

    def _key(self, letter: Outgoing) -> str:
        """The ordering key of *letter*: the empty string where there is none."""
        key = partition_key(letter) if self._clients.service.ordering else ""
        if _fits(key):
            return key
        return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()

    def _resume(self, client: PublisherClient, failed: Iterable[Outgoing]) -> None:
        """Let letters of the keys of *failed* through again, which the client keeps back."""
        for key in {(queue_name(one.domain), self._key(one)) for one in failed}:
            if key[1]:
                with contextlib.suppress(RuntimeError):  # it keeps none back
                    client.resume_publish(self._clients.service.topic(key[0]), key[1])


def _fits(text: str) -> bool:
    """True if *text* can be an attribute's value or an ordering key."""
    try:
        return len(text.encode()) <= _SHORT
    except UnicodeEncodeError:
        return False


def _awaited(sent: Any, deadline: float) -> Any:
    if isinstance(sent, (str, Aborted)):
        return sent
    try:
        return sent.exception(timeout=max(deadline - time.monotonic(), 0))
    except TimeoutError:
        return DeadlineExceeded("no answer")


def _answer(error: Any) -> str | None:
    if error is None or isinstance(error, str):
        return error
    if isinstance(error, FAILURES):
        return f"Pub/Sub did not take it: {reason_of(error)}"
    return _OVERTAKING  # the client kept it back behind one with the same key
