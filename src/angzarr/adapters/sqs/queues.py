"""The queues of letters: their names and addresses; one that is missing is created, if wanted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from angzarr.adapters.sqs.client import FAILURES, Client, Service, is_gone
from angzarr.adapters.sqs.queue_check import RETENTION, QueueCheck
from angzarr.dead_letters.depth import QueueDepth
from angzarr.dead_letters.names import queue_name
from angzarr.errors import DeadLetterQueueUnavailable

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.literals import QueueAttributeNameType

#: What the names of FIFO queues and topics end in.
FIFO_SUFFIX: Final = ".fifo"
#: What SQS says to have for a receiver, and besides: in somebody's hands, and not yet due.
_WAITING: Final = "ApproximateNumberOfMessages"
_IN_HAND: Final = "ApproximateNumberOfMessagesNotVisible"
_DELAYED: Final = "ApproximateNumberOfMessagesDelayed"


def _nothing_more(_name: str) -> Mapping[str, str]:
    return {}


class Queues:
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
        self._check = QueueCheck()

    @property
    def client(self) -> SQSClient:
        """The client, made when first needed; it may be used from any thread."""
        client: SQSClient = self._client.get()
        return client

    def name(self, domain: str) -> str:
        """Return what *domain*'s queue is called, and its topic."""
        return queue_name(domain, FIFO_SUFFIX if self.fifo else "")

    def url(self, domain: str) -> str:
        """Return the address of *domain*'s queue."""
        name = self.name(domain)
        if name not in self._urls:
            self._urls[name] = self._find(name)
        return self._urls[name]

    def depth(self, domain: str) -> QueueDepth:
        """Return about how many messages *domain*'s queue has; none if it is missing.

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
        """Tell whether *error* says that the queue was deleted; it is then looked up anew."""
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
