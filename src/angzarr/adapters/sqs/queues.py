"""The dead-letter queues on SQS: their names and addresses, created where missing and wanted.

Each queue that others made is checked once for settings that could lose letters.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from angzarr.adapters.sqs.client import FAILURES, Client, Service, is_gone, reason_of
from angzarr.dead_letters.depth import QueueDepth
from angzarr.dead_letters.names import queue_name
from angzarr.errors import DeadLetterQueueUnavailable

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.literals import QueueAttributeNameType

_LOG: Final = logging.getLogger(__name__)
#: The longest SQS keeps a message: 14 days, in seconds.
RETENTION: Final = 14 * 24 * 3600
_ASKED: Final[Any] = ("MessageRetentionPeriod", "RedrivePolicy")


class SqsQueueCheck:
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
    """By what letters in a queue with these attributes could be lost, with what to do."""
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


#: What the names of FIFO queues and topics end in.
FIFO_SUFFIX: Final = ".fifo"
#: The messages that SQS offers to receivers, those in hand, and those not yet due.
_WAITING: Final = "ApproximateNumberOfMessages"
_IN_HAND: Final = "ApproximateNumberOfMessagesNotVisible"
_DELAYED: Final = "ApproximateNumberOfMessagesDelayed"


def _nothing_more(_name: str) -> Mapping[str, str]:
    return {}


class SqsQueues:
    """The queues' addresses, looked up once; safe from any thread.

    *more* gives the attributes that a new queue of a name gets besides ours.
    """

    def __init__(
        self,
        service: Service,
        *,
        fifo: bool,
        create_missing: bool,
        more: Callable[[str], Mapping[str, str]] = _nothing_more,
    ) -> None:
        self.fifo = fifo
        self.create_missing = create_missing
        self._client = Client(service, "sqs")
        self._more = more
        self._urls: dict[str, str] = {}
        self._check = SqsQueueCheck()

    @property
    def client(self) -> SQSClient:
        """The client, made when first needed; it may be used from any thread."""
        client: SQSClient = self._client.get()
        return client

    def name(self, domain: str) -> str:
        """The name of *domain*'s queue and topic."""
        return queue_name(domain, FIFO_SUFFIX if self.fifo else "")

    def url(self, domain: str) -> str:
        """The address of *domain*'s queue."""
        name = self.name(domain)
        if name not in self._urls:
            self._urls[name] = self._find(name)
        return self._urls[name]

    def depth(self, domain: str) -> QueueDepth:
        """The approximate number of messages in *domain*'s queue; none if it is missing.

        When the first came is known to CloudWatch alone.
        """
        try:
            url = self.client.get_queue_url(QueueName=self.name(domain))["QueueUrl"]
            asked: list[QueueAttributeNameType] = [_WAITING, _IN_HAND, _DELAYED]
            told = self.client.get_queue_attributes(QueueUrl=url, AttributeNames=asked)
        except FAILURES as error:
            if is_gone(error):
                return QueueDepth(0, 0)
            raise
        waiting, *others = (int(told["Attributes"].get(name, "0")) for name in asked)
        return QueueDepth(waiting, waiting + sum(others))

    def forget_if_gone(self, domain: str, error: BaseException) -> bool:
        """True if *error* says that the queue was deleted; it is then looked up anew."""
        if is_gone(error):
            self._urls.pop(self.name(domain), None)
            return True
        return False

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _find(self, name: str) -> str:
        client = self.client
        try:
            url = client.get_queue_url(QueueName=name)["QueueUrl"]
        except client.exceptions.QueueDoesNotExist:
            return self._create(name)
        self._check.look(client, name, url)
        return url

    def _create(self, name: str) -> str:
        if not self.create_missing:
            msg = (
                f"the SQS queue {name} does not exist: create it, with MessageRetentionPeriod="
                f"{RETENTION}, or set dlq.create_missing to true"
            )
            raise DeadLetterQueueUnavailable(msg)
        kind = {"FifoQueue": "true"} if self.fifo else {}
        settings: Any = {"MessageRetentionPeriod": str(RETENTION), **kind, **self._more(name)}
        return self.client.create_queue(QueueName=name, Attributes=settings)["QueueUrl"]
