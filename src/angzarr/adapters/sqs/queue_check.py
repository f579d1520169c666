"""Looks once at each queue that others made, and says by what letters could be lost in it."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from angzarr.adapters.sqs.client import FAILURES, reason_of

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

_LOG: Final = logging.getLogger(__name__)
#: The longest SQS keeps a message: 14 days, in seconds.
RETENTION: Final = 14 * 24 * 3600
_ASKED: Final[Any] = ("MessageRetentionPeriod", "RedrivePolicy")


class QueueCheck:
    """Judges each queue once a process; without the right to ask it says nothing."""

    def __init__(self) -> None:
        self._judged: set[str] = set()

    def look(self, client: SQSClient, name: str, url: str) -> None:
        """Warn, the first time, of what *name* lacks; never raises what SQS answers."""
        if name in self._judged:
            return
        self._judged.add(name)
        try:
            reply: Any = client.get_queue_attributes(QueueUrl=url, AttributeNames=_ASKED)
        except FAILURES as error:  # no right to ask, or SQS is away: not our road
            _LOG.debug("the queue %s could not be looked at: %s", name, reason_of(error))
            return
        if told := weaknesses(reply.get("Attributes", {})):
            said = "dead_letters_at_risk: SQS could lose or move dead letters. %s: %s"
            _LOG.warning(said, name, ", ".join(told))


def weaknesses(given: Mapping[str, str]) -> list[str]:
    """Return by what letters in a queue with these attributes could be lost, with what to do."""
    told = []
    retention = given.get("MessageRetentionPeriod", "")
    if retention.isdecimal() and int(retention) < RETENTION:
        told.append(f"MessageRetentionPeriod={retention} (set it to {RETENTION})")
    if redrive := given.get("RedrivePolicy"):
        told.append(f"{moving(redrive)} (remove its redrive policy)")
    return told


def moving(redrive: str, what: str = "letter") -> str:
    """Say what the redrive policy does; its text is another's, so it may be anything."""
    try:
        policy = json.loads(redrive)
        target = str(policy["deadLetterTargetArn"]).rpartition(":")[2]
        return f"a {what} received {int(policy['maxReceiveCount'])} times is moved to {target}"
    except (ValueError, TypeError, KeyError, RecursionError):
        return f"{what}s received several times are moved to another queue"
