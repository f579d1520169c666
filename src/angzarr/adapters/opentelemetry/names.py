"""Names of span attributes: the messaging semantic conventions (1.43), and our own.

Written out here because the conventions' package marks them as incubating and moves them. Wire
names: listed in docs/reference/metrics.md.
"""

from __future__ import annotations

from typing import Final

SYSTEM: Final = "messaging.system"
DESTINATION: Final = "messaging.destination.name"
MESSAGE_ID: Final = "messaging.message.id"
CONVERSATION_ID: Final = "messaging.message.conversation_id"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
ERROR_TYPE: Final = "error.type"

EVENT_ID: Final = "angzarr.event.id"
EVENT_TYPE: Final = "angzarr.event.type"
DOMAIN: Final = "angzarr.domain"
HANDLER: Final = "angzarr.handler"
ATTEMPT: Final = "angzarr.attempt"
REPLAY: Final = "angzarr.replay"
OUTCOME: Final = "angzarr.outcome"
ERROR_CATEGORY: Final = "angzarr.error.category"
ERROR_CODE: Final = "angzarr.error.code"
LETTER_ID: Final = "angzarr.letter.id"
REASON: Final = "angzarr.reason"
DELAY: Final = "angzarr.delay_ms"

#: kombu's names of brokers → the conventions' names.
SYSTEMS: Final = {"amqp": "rabbitmq", "pyamqp": "rabbitmq", "sqs": "aws_sqs"}
