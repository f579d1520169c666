"""The description: what is wanted, read from JSON and checked before the first call."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from angzarr_aws import names

#: Seconds that SQS keeps a message at most, and that one may be hidden.
RETENTION = 14 * 24 * 3600
LONGEST_VISIBILITY = 12 * 3600
#: SQS takes no more.
MOST_RECEIVES = 1000

SSE_SQS, NO_ENCRYPTION = "sse-sqs", "none"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


class Mistake(Exception):
    """Something that a person must change; its text is one sentence."""


@dataclass(frozen=True)
class TaskQueue:
    """A queue of Celery's; `max_receives` None: nothing is moved away from it."""

    visibility_timeout: int = 1800
    max_receives: int | None = None


@dataclass(frozen=True)
class Bucket:
    """Where the bodies of large letters go; `keep_days` None: nothing expires."""

    name: str
    prefix: str = ""
    keep_days: int | None = None


@dataclass(frozen=True)
class Description:
    """All that is wanted."""

    domains: tuple[str, ...]
    fifo: bool = False
    #: Whether each queue of letters has a topic before it (`dlq.backend: sns_sqs`).
    topics: bool = False
    #: `dlq.aws_visibility`, in seconds.
    visibility: int = 300
    #: ``sse-sqs``, ``none``, or the id, ARN or alias of a KMS key.
    encryption: str = SSE_SQS
    task_queues: Mapping[str, TaskQueue] = field(default_factory=dict)
    task_queue_prefix: str = ""
    bucket: Bucket | None = None


def read(path: Path) -> Description:
    """Return the description in the file *path*; raises Mistake."""
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Mistake(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise Mistake(f"{path} is no JSON: {error}") from error
    try:
        return checked(given)
    except Mistake as error:
        raise Mistake(f"{path}: {error}") from None


def checked(given: Any) -> Description:
    """Return the description that *given* is; raises Mistake naming the key."""
    known = _fields(given, "the description", Description)
    queues = known.get("task_queues", {})
    if not isinstance(queues, dict):
        raise Mistake("task_queues must be an object, by queue")
    known["task_queues"] = {name: _queue(name, one) for name, one in queues.items()}
    if known.get("bucket") is not None:
        known["bucket"] = Bucket(**{"name": "", **_fields(known["bucket"], "bucket", Bucket)})
    domains = known.get("domains")
    if not isinstance(domains, list) or not domains:
        raise Mistake('domains must be a list, e.g. ["order", "unknown"]')
    made = Description(**{**known, "domains": tuple(domains)})
    _check(made)
    return made


def _fields(given: Any, what: str, kind: type[Any]) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise Mistake(f"{what} must be an object")
    known = kind.__dataclass_fields__
    if unknown := sorted(set(given) - set(known)):
        raise Mistake(f"{what} knows no {', '.join(unknown)}; it knows {', '.join(known)}")
    return dict(given)


def _queue(name: str, given: Any) -> TaskQueue:
    queue = TaskQueue(**_fields(given, f"task_queues.{name}", TaskQueue))
    _whole(f"task_queues.{name}.visibility_timeout", queue.visibility_timeout, LONGEST_VISIBILITY)
    if queue.max_receives is not None:
        _whole(f"task_queues.{name}.max_receives", queue.max_receives, MOST_RECEIVES)
    return queue


def _check(made: Description) -> None:
    taken: dict[str, str] = {names.letters(names.UNDELIVERED): "what SNS could not deliver"}
    for domain in made.domains:
        if not names.is_domain(domain):
            raise Mistake(f"{domain!r} is no domain: they match [a-z][a-z0-9.-]*, 64 at most")
        name = names.letters(domain)
        if name in taken:
            raise Mistake(f"{domain!r} and {taken[name]!r} would share the queue {name}")
        taken[name] = domain
    _whole("visibility", made.visibility, LONGEST_VISIBILITY)
    for flag in ("fifo", "topics"):
        if not isinstance(getattr(made, flag), bool):
            raise Mistake(f"{flag} must be true or false")
    if not isinstance(made.task_queue_prefix, str):
        raise Mistake("task_queue_prefix must be a text")
    if not isinstance(made.encryption, str) or not made.encryption:
        raise Mistake("encryption must be sse-sqs, none, or the id, ARN or alias of a KMS key")
    if made.topics and made.encryption == "alias/aws/sqs":
        raise Mistake("SNS may not use alias/aws/sqs: say sse-sqs, or name a key of yours")
    if made.bucket is not None:
        _check_bucket(made.bucket)


def _check_bucket(bucket: Bucket) -> None:
    if not isinstance(bucket.name, str) or not _BUCKET.fullmatch(bucket.name):
        raise Mistake(f"bucket.name: {bucket.name!r} is none, 3 to 63 of a-z, 0-9, - and .")
    if not isinstance(bucket.prefix, str):
        raise Mistake("bucket.prefix must be a text")
    if bucket.keep_days is not None:
        _whole("bucket.keep_days", bucket.keep_days, 36_500)


def _whole(what: str, number: Any, most: int) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= most:
        raise Mistake(f"{what} must be a whole number from 1 to {most}")
