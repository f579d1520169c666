"""The clients of one process for SQS and SNS, and the meaning of their failures."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import boto3
from botocore import exceptions
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from angzarr.errors import DeadLetterQueueUnavailable

#: What boto3 raises when AWS or the network fails.
FAILURES: Final = (BotoCoreError, ClientError)
#: Seconds that one long poll may wait; the reply's time-out comes on top.
LONG_POLL: Final = 1

_GONE: Final = frozenset(
    {
        "QueueDoesNotExist",
        "AWS.SimpleQueueService.NonExistentQueue",
        "NotFound",
        "NotFoundException",
    }
)
#: Failures on our own side, each with what to do.
_CURES: Final[tuple[tuple[tuple[type[BaseException], ...], str], ...]] = (
    (
        (exceptions.NoCredentialsError, exceptions.PartialCredentialsError),
        (
            "no AWS credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY,"
            " a profile, or a role"
        ),
    ),
    ((exceptions.NoRegionError,), "no AWS region is known; set aws_region or AWS_DEFAULT_REGION"),
    (
        (exceptions.InvalidRegionError,),
        "there is no such AWS region; set aws_region to its short name",
    ),
    (
        (exceptions.ProfileNotFound,),
        "the AWS profile is in neither ~/.aws/config nor ~/.aws/credentials; fix aws_profile",
    ),
    (
        (exceptions.SSOError, exceptions.TokenRetrievalError),
        "the AWS login of the profile has ended; run aws sso login, or use a role",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Where SQS and SNS are and how long to wait for them; `options` may hold secrets."""

    region: str | None
    endpoint_url: str | None
    profile: str | None
    timeout: float
    options: Mapping[str, Any] = field(repr=False)

    def connect(self, kind: str) -> Any:
        """A client of its own session, which is what may be made in any thread."""
        config = Config(
            connect_timeout=self.timeout,
            read_timeout=self.timeout + LONG_POLL,
            retries={"mode": "standard", "total_max_attempts": 2},
        )
        session: Any = boto3.session.Session(profile_name=self.profile)
        return session.client(
            kind,
            region_name=self.region,
            endpoint_url=self.endpoint_url,
            config=config,
            **self.options,
        )


class Client:
    """A client of *kind*, ``sqs`` or ``sns``, made when first needed; safe from any thread."""

    def __init__(self, service: Service, kind: str) -> None:
        self._service = service
        self._kind = kind
        self._lock = threading.Lock()
        self._client: Any = None

    def get(self) -> Any:
        """It."""
        with self._lock:
            if self._client is None:
                self._client = self._service.connect(self._kind)
            return self._client

    def close(self) -> None:
        """Close its connections; `get` makes a new one."""
        with self._lock:
            if self._client:
                self._client.close()
            self._client = None


@contextlib.contextmanager
def told(name: str) -> Iterator[None]:
    """Turn a failure of *name* into DeadLetterQueueUnavailable with one sentence."""
    try:
        yield
    except FAILURES as error:
        msg = f"{name} does not take dead letters: {reason_of(error)}"
        raise DeadLetterQueueUnavailable(msg) from error


def reason_of(error: BaseException) -> str:
    """The text of *error*, on one line; client-side texts may hold addresses, so no text."""
    if isinstance(error, DeadLetterQueueUnavailable):
        return str(error)
    for kinds, cure in _CURES:
        if isinstance(error, kinds):
            return cure
    if isinstance(error, ClientError):
        said = error.response.get("Error", {})
        return f"{said.get('Code', '')} {' '.join(said.get('Message', '').split())[:200]}".strip()
    return f"no answer ({type(error).__name__})"


def is_gone(error: BaseException) -> bool:
    """True if *error* says that the queue, topic or subscription does not exist."""
    return isinstance(error, ClientError) and error.response["Error"].get("Code") in _GONE
