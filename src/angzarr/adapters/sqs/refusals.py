"""Which errors of SQS are about one message or one queue, and which about the whole service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from amqp.exceptions import ChannelError
from botocore.exceptions import ClientError, ParamValidationError
from kombu.transport.SQS.exceptions import UndefinedQueueException

from angzarr.adapters.sqs.polling import GONE, code_of

#: What SQS says of one message, or of the one queue that it is for; others may be sent meanwhile.
#: Every other error is the service's: credentials, throttling, an outage.
_REFUSED: Final = GONE | {
    "413", "InvalidAddress", "InvalidAttributeName", "InvalidAttributeValue",
    "InvalidMessageContents", "InvalidParameterCombination", "InvalidParameterValue",
    "KmsAccessDenied", "KmsDisabled", "KmsInvalidKeyUsage", "KmsInvalidState", "KmsNotFound",
    "MessageTooLong", "MissingParameter", "QueueAlreadyExists", "QueueDeletedRecently",
    "QueueNameExists", "RequestEntityTooLarge", "UnsupportedOperation",
}  # fmt: skip
#: What it says of the rights to one queue, if these were asked for.
_DENIED: Final = frozenset({"AccessDenied", "AccessDeniedException"})
_OF_ONE_QUEUE: Final = frozenset({"SendMessage", "SendMessageBatch", "CreateQueue"})
#: What it says of a batch as a whole.
_OF_A_BATCH: Final = frozenset({"BatchRequestTooLong", "InvalidBatchEntryId"})


class SqsRefused(ChannelError):
    """SQS answers, but refuses this message, or any message for its queue."""


@contextmanager
def refusals() -> Iterator[None]:
    """Raise what concerns one message, one batch or one queue as `SqsRefused`."""
    try:
        yield
    except (ClientError, ParamValidationError, UndefinedQueueException) as error:
        if not _concerns_one(error):
            raise
        raise SqsRefused(str(error)) from error


def _concerns_one(error: Exception) -> bool:
    if not isinstance(error, ClientError):
        return True
    denied = code_of(error) in _DENIED and error.operation_name in _OF_ONE_QUEUE
    return denied or code_of(error) in _REFUSED | _OF_A_BATCH


def failure_of(entry: Mapping[str, Any]) -> Exception:
    """The error of one entry of a batch that SQS did not take."""
    said: Any = {"Error": {"Code": entry.get("Code", ""), "Message": entry.get("Message", "")}}
    error = ClientError(said, "SendMessageBatch")
    if not (entry.get("SenderFault") or _concerns_one(error)):
        return error
    refused = SqsRefused(str(error))
    refused.__cause__ = error
    return refused


def is_of_its_queue(error: SqsRefused) -> bool:
    """True if each message for the same queue would be refused as well."""
    return code_of(error.__cause__) in GONE | _DENIED
