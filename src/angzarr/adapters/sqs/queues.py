"""The SQS client of one process, the queues it knows, and what its failures mean."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError

from angzarr.dead_letters.names import queue_name
from angzarr.errors import DeadLetterQueueUnavailable

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

#: What boto3 raises when AWS or the network fails.
FAILURES: Final = (BotoCoreError, ClientError)
#: The name of the message attribute that tells a letter's form.
CONTENT_TYPE: Final = "content_type"
#: Seconds that one long poll may wait; the reply's time-out comes on top.
LONG_POLL: Final = 1
#: The longest SQS keeps a message: 14 days, in seconds.
_RETENTION: Final = "1209600"
_GONE: Final = frozenset({"QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Where SQS is and how long to wait for it; `options` may hold secrets."""

    region: str | None
    endpoint_url: str | None
    timeout: float
    options: Mapping[str, Any] = field(repr=False)

    def connect(self) -> SQSClient:
        """Return a client of its own session, which is what may be made in any thread."""
        config = Config(
            connect_timeout=self.timeout,
            read_timeout=self.timeout + LONG_POLL,
            retries={"mode": "standard", "total_max_attempts": 2},
        )
        client: SQSClient = boto3.session.Session().client(
            "sqs",
            region_name=self.region,
            endpoint_url=self.endpoint_url,
            config=config,
            **self.options,
        )
        return client

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """Turn a failure of the client into DeadLetterQueueUnavailable with one sentence."""
        try:
            yield
        except FAILURES as error:
            msg = f"SQS does not take dead letters: {reason_of(error)}"
            raise DeadLetterQueueUnavailable(msg) from error


def reason_of(error: BaseException) -> str:
    """Return what *error* says, on one line; client-side texts may hold addresses, so no text."""
    if isinstance(error, NoCredentialsError):
        return (
            "no AWS credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY,"
            " a profile, or a role"
        )
    if isinstance(error, NoRegionError):
        return "no AWS region is known; set aws_region or AWS_DEFAULT_REGION"
    if isinstance(error, ClientError):
        said = error.response.get("Error", {})
        return f"{said.get('Code', '')} {' '.join(said.get('Message', '').split())[:200]}".strip()
    return f"no answer ({type(error).__name__})"


def is_gone(error: BaseException) -> bool:
    """Tell whether *error* says that there is no such queue."""
    return isinstance(error, ClientError) and error.response["Error"].get("Code") in _GONE


class Queues:
    """The queues' addresses, looked up once; a queue that is missing is created."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._lock = threading.Lock()
        self._client: SQSClient | None = None
        self._urls: dict[str, str] = {}

    @property
    def client(self) -> SQSClient:
        """The client, made when first needed; it may be used from any thread."""
        with self._lock:
            if self._client is None:
                self._client = self._service.connect()
            return self._client

    def url(self, domain: str) -> str:
        """Return the address of *domain*'s queue."""
        name = queue_name(domain)
        if name not in self._urls:
            self._urls[name] = self._find(name)
        return self._urls[name]

    def forget_if_gone(self, domain: str, error: BaseException) -> bool:
        """Tell whether *error* says that the queue was deleted; it is then created when needed."""
        if is_gone(error):
            self._urls.pop(queue_name(domain), None)
            return True
        return False

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            if self._client:
                self._client.close()
            self._client = None

    def _find(self, name: str) -> str:
        client = self.client
        try:
            return client.get_queue_url(QueueName=name)["QueueUrl"]
        except client.exceptions.QueueDoesNotExist:
            settings: Any = {"MessageRetentionPeriod": _RETENTION}
            return client.create_queue(QueueName=name, Attributes=settings)["QueueUrl"]
