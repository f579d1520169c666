"""SQS for Celery: kombu's transport, which takes whatever is on a queue and gives it back itself.

kombu ends the worker on some messages that are none of its own, and gives a message back by sending
a copy: the original comes again after its visibility time-out all the same.
"""

from __future__ import annotations

import base64
import logging
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from kombu.transport import SQS as stock  # noqa: N811 - a module

_log = logging.getLogger("angzarr.transport")


class Channel(stock.Channel):
    """kombu's channel with these two mended."""

    def _message_to_python(self, message: Any, queue_name: str, q_url: str) -> Any:
        """Return kombu's envelope in *message*; what is none is a foreign message, as it is."""
        try:
            envelope = super()._message_to_python(message, queue_name, q_url)
            if queue_name in self._noack_queues or _is_sound(envelope):
                return _routed(envelope, queue_name)
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            _log.debug("no_envelope on queue %s: %r", queue_name, error)
        foreign = {"body": message["Body"], "properties": {"delivery_info": {}}}
        return _routed(self._envelope_payload(foreign, message["Body"], message, q_url), queue_name)

    def _restore(self, message: Any, *_args: Any) -> None:
        """Make *message* visible again at once; if that fails it is after its time-out."""
        info = message.delivery_info
        if "sqs_message" not in info:
            return
        try:
            self.sqs(
                queue=self.canonical_queue_name(info["routing_key"])
            ).change_message_visibility(
                QueueUrl=info["sqs_queue"],
                ReceiptHandle=info["sqs_message"]["ReceiptHandle"],
                VisibilityTimeout=0,
            )
        except (ClientError, BotoCoreError, OSError) as error:
            _log.warning("not_given_back: it comes after its visibility time-out (%s)", error)


class Transport(stock.Transport):
    """The transport of ``sqs://`` URLs in an Angzarr app."""

    Channel = Channel


def _is_sound(envelope: Any) -> bool:
    """Tell whether a kombu message can be made of *envelope*."""
    properties = envelope["properties"]
    headers = envelope.get("headers")
    if not isinstance(headers, dict) or "body" not in envelope:
        return False
    if properties.get("body_encoding") == "base64":
        base64.b64decode(envelope["body"], validate=True)
    return isinstance(properties["delivery_info"], dict)


def _routed(envelope: Any, queue_name: str) -> Any:
    """Name the queue that the message lay on, where nobody has."""
    info = envelope["properties"]["delivery_info"]
    info.setdefault("exchange", "")
    if not isinstance(info.get("routing_key"), str):
        info["routing_key"] = queue_name
    return envelope
