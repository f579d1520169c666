"""What SQS says of a message besides its text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from angzarr.adapters.sqs.notification import attributes_of
from angzarr.dead_letters.record import ForeignRecord

if TYPE_CHECKING:
    from mypy_boto3_sqs.type_defs import MessageTypeDef

#: Attributes asked for with each message: AWS counts ten of a sender, and some of its own.
ALL: Final = ("All",)


def record_of(message: MessageTypeDef) -> ForeignRecord:
    """Return attributes, id and place of *message*, and those of a notification that it holds."""
    given = message.get("MessageAttributes", {})
    headers = [(name, _value(value)) for name, value in given.items()]
    system = {str(name): value for name, value in message.get("Attributes", {}).items()}
    group = system.get("MessageGroupId")
    return ForeignRecord(
        broker="sqs",
        place={"message_id": message.get("MessageId", "")},
        is_unique=True,
        key=group.encode() if group else None,
        headers=(*headers, *attributes_of(message.get("Body", "")).items()),
        properties=system,
    )


def _value(given: Any) -> Any:
    return given["BinaryValue"] if "BinaryValue" in given else given.get("StringValue", "")
