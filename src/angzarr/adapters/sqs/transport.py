"""kombu's SQS transport, made to survive any message and to give messages back itself.

kombu ends the worker on some foreign messages, and gives a message back by sending a copy: the
original comes again after its visibility time-out. It also treats an error of SQS as a bug of the
caller, not as a broker's refusal.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from kombu.transport import SQS as stock  # noqa: N811 - a module
from kombu.transport.SQS.exceptions import AccessDeniedQueueException

from angzarr.adapters.sqs.deletions import Deletion, Deletions
from angzarr.adapters.sqs.message_batches import (
    RequestCollector,
    SendAnswer,
    SendRequest,
    send_batches,
)
from angzarr.adapters.sqs.polling import GONE, PollingChannel, code_of
from angzarr.adapters.sqs.received import ReceivedMessages
from angzarr.adapters.sqs.refusals import SqsRefused, refusals
from angzarr.events.headers import NoNumber, read_number
from angzarr.events.received import ENVELOPE, UNREADABLE, DamagedEnvelope, check_envelope
from angzarr.runtime.failures import is_machine_fault
from angzarr.runtime.json_bounds import TooMuch, check_json
from angzarr.runtime.message_line import MessageInLine

_log = logging.getLogger("angzarr.transport")


class SqsChannel(PollingChannel):
    """kombu's channel without these faults."""

    #: The requests of publishes that are collected; None: each is sent at once.
    _collected: list[SendRequest] | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        #: What was acknowledged and is to be deleted with others.
        self.deletions = Deletions(self._client_of, self._delete_one, self.qos.ack)

    def _new_queue(self, queue: str, **options: Any) -> Any:
        """The address of *queue*, which is created if need be; raises `SqsRefused`."""
        with refusals():
            return super()._new_queue(queue, **options)

    def _put(self, queue: str, message: Any, **options: Any) -> None:
        """Send *message*; raises `SqsRefused`. The next try creates a queue that was deleted."""
        try:
            with refusals():
                super()._put(queue, message, **options)
        except SqsRefused as error:
            if code_of(error.__cause__) in GONE:
                self.forget_address(queue)
            raise

    def sqs(self, queue: str | None = None) -> Any:
        """The client of *queue*; while publishes are collected it keeps what it is to send."""
        client = super().sqs(queue)
        return client if self._collected is None else RequestCollector(client, self._collected)

    @contextmanager
    def collecting(self) -> Iterator[list[SendRequest]]:
        """Let publishes send nothing within the block, but add their requests to its list."""
        requests: list[SendRequest] = []
        self._collected = requests
        try:
            yield requests
        finally:
            self._collected = None

    def send_collected(self, requests: Sequence[SendRequest]) -> list[SendAnswer]:
        """Send *requests* in batches and answer for each; forget addresses of deleted queues."""
        answers = send_batches(requests)
        for request, answer in zip(requests, answers, strict=True):
            if answer.error is not None and code_of(answer.error.__cause__) in GONE:
                self._forget_url(request.arguments["QueueUrl"])
        return answers

    def _forget_url(self, url: str) -> None:
        if not self.predefined_queues:
            for name in [name for name, known in self._queue_cache.items() if known == url]:
                self._queue_cache.pop(name, None)

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, *args: Any, **options: Any  # noqa: FBT001 - kombu's
    ) -> None:  # fmt: skip
        """Consume; a callback with `redelivered` makes messages of what came before itself."""
        super().basic_consume(queue, no_ack, callback, consumer_tag, *args, **options)
        if not no_ack and hasattr(callback, "redelivered"):
            self.connection._callbacks[queue] = partial(self._receive, queue, callback)  # noqa: SLF001 - pinned by a test

    def basic_cancel(self, consumer_tag: str) -> None:
        """Consume no more; what its loop has received and not handed out goes back."""
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue is not None and self.connection.received is not None:
            self.connection.received.reject(self, queue)

    def close(self) -> None:
        """Delete what is to be, and close; what was not acknowledged goes back."""
        self.deletions.send()
        if self.connection is not None and self.connection.received is not None:
            self.connection.received.forget(self)
        super().close()

    def _receive(self, queue: str, callback: Any, payload: Any) -> Any:
        make = partial(self.Message, payload, channel=self)
        identity, reread = _identity_of_redelivered(payload), None
        if identity is None:
            message = make()
        else:
            message = self._packed(payload)
            again = partial(callback.redelivered, identity, make, partial(self._packed, payload))
            reread = partial(self._reread, again)
        self.qos.append(message, message.delivery_tag)
        received = self.connection.received
        if received is None:
            return callback(message if reread is None else reread())
        one = MessageInLine(self, queue, callback, message, reread)
        return received.add(one, self.qos.prefetch_count)

    def _reread(self, read: Callable[[], Any]) -> Any:
        """The message that *read* makes, which is held in place of the one it is made of."""
        message = read()
        self.qos.append(message, message.delivery_tag)
        return message

    def _packed(self, payload: Any) -> Any:
        """The message in *payload*, its body as it came."""
        message = self.Message({**payload, "headers": {}}, channel=self)
        message.headers, message._raw = payload.get("headers") or {}, payload  # noqa: SLF001 - kombu's own name for it
        return message

    def basic_ack(self, delivery_tag: Any, multiple: bool = False) -> None:  # noqa: FBT001, FBT002 - kombu's
        """Delete a message: where a loop turns this channel, with others soon."""
        received = None if self.connection is None else self.connection.received
        deletion = None if received is None else self._deletion(delivery_tag)
        if received is None or deletion is None:
            self._delete_one(delivery_tag, multiple)
        else:
            self.deletions.add(deletion)
            received.delete_soon(self)

    def _delete_one(self, delivery_tag: Any, multiple: bool = False) -> None:  # noqa: FBT001, FBT002 - kombu's
        """Delete a message; without the right to it, it comes again and is a duplicate."""
        try:
            super().basic_ack(delivery_tag, multiple)
        except AccessDeniedQueueException as error:
            if self._seldom.now("delete"):
                _log.error("sqs_not_deleted: allow this role sqs:DeleteMessage (%s)", error)

    def _deletion(self, delivery_tag: Any) -> Deletion | None:
        """What deletes a message that this channel holds; None: kombu knows what to do."""
        try:
            info = self.qos.get(delivery_tag).delivery_info
            handle = info["sqs_message"]["ReceiptHandle"]
            return Deletion(delivery_tag, info["routing_key"], info["sqs_queue"], handle)
        except KeyError:
            return None

    def _client_of(self, queue: str) -> Any:
        return self.sqs(queue=self.canonical_queue_name(queue))

    def _message_to_python(self, message: Any, queue_name: str, q_url: str) -> Any:
        """The envelope of kombu in *message*; what is none is a foreign message, as it is.

        So is one that is damaged, which says so: it becomes a letter of all its text.
        """
        properties: dict[str, Any] = {"delivery_info": {}}
        try:
            envelope = super()._message_to_python(message, queue_name, q_url)
            if queue_name in self._noack_queues or _is_sound(envelope):
                return _routed(envelope, queue_name, message)
        except (DamagedEnvelope, TooMuch) as error:
            properties[UNREADABLE] = str(error)
        except Exception as error:  # what makes a date of any text raises anything
            if is_machine_fault(error):
                raise
            _log.debug("no_envelope on queue %s: %r", queue_name, error)
        foreign = {"body": message["Body"], "properties": properties}
        payload = self._envelope_payload(foreign, message["Body"], message, q_url)
        return _routed(payload, queue_name, message)

    def _prepare_json_payload(self, text: str) -> Any:
        """*text* parsed as JSON; raises TooMuch if it is too large for an envelope."""
        check_json(text, ENVELOPE)
        return super()._prepare_json_payload(text)

    def _restore(self, message: Any, *_args: Any) -> None:
        """Make *message* visible again; if that fails it is after its time-out.

        It is at once, unless a poll of a queue that is not consumed any more is under way: SQS may
        answer that poll with this message after this worker has ended.
        """
        info = message.delivery_info
        if "sqs_message" not in info:
            return
        is_consumed = info["routing_key"] in self._active_queues
        hidden = 0 if is_consumed else self.seconds_polled(info["sqs_queue"])
        try:
            self._client_of(info["routing_key"]).change_message_visibility(
                QueueUrl=info["sqs_queue"],
                ReceiptHandle=info["sqs_message"]["ReceiptHandle"],
                VisibilityTimeout=hidden,
            )
        except (ClientError, BotoCoreError, OSError) as error:
            _log.warning("not_given_back: it comes after its visibility time-out (%s)", error)


class SqsTransport(stock.Transport):
    """The transport of ``sqs://`` URLs in an Angzarr app."""

    Channel = SqsChannel
    # kombu's lists have botocore's own errors alone, not what SQS answers.
    connection_errors = (*stock.Transport.connection_errors, ClientError)
    channel_errors = (*stock.Transport.channel_errors, ClientError)
    #: What its loop has received; None: no loop turns it.
    received: ReceivedMessages | None = None

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Let *loop* hand out what comes, and delete in batches what was acknowledged."""
        super().register_with_event_loop(connection, loop)
        self._leave()
        names = ("on_fetched", "on_put_back", "on_turn")
        heard = {name: self.client.transport_options.get(name) for name in names}
        self.received = ReceivedMessages(loop, **heard)

    def close_connection(self, connection: Any) -> None:
        """Delete what is to be, give back what was not handed out, and close."""
        super().close_connection(connection)
        self._leave()

    def _leave(self) -> None:
        if self.received is not None:
            self.received.leave()
            self.received = None


def _identity_of_redelivered(payload: Any) -> bytes | None:
    """The identity of a redelivered message; None: it was never delivered before."""
    came = payload["properties"]["delivery_info"].get("sqs_message", {})
    times = str(came.get("Attributes", {}).get("ApproximateReceiveCount", "1"))
    if times == "1" or not came.get("MessageId"):
        return None
    return str(came["MessageId"]).encode()


def _is_sound(envelope: Any) -> bool:
    """True if a kombu message can be made of *envelope*."""
    properties = envelope["properties"]
    headers = envelope.get("headers")
    if not isinstance(headers, dict) or "body" not in envelope:
        return False
    if properties.get("body_encoding") == "base64":
        base64.b64decode(envelope["body"], validate=True)
    if not isinstance(properties["delivery_info"], dict):
        return False
    check_envelope(envelope)
    return True


def _routed(envelope: Any, queue_name: str, message: Any) -> Any:
    """Name the queue that *message* lay on, if it has no name; say whether it came before."""
    info = envelope["properties"]["delivery_info"]
    count = read_number((message.get("Attributes") or {}).get("ApproximateReceiveCount"))
    info["redelivered"] = not isinstance(count, NoNumber) and count > 1
    info.setdefault("exchange", "")
    if not isinstance(info.get("routing_key"), str):
        info["routing_key"] = queue_name
    return envelope
