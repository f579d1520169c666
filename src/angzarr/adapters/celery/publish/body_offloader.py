"""BodyOffloader: what is too large for the broker goes to the payload store before it is sent.

Every message of a task passes `OffloadingProducer`, which serializes it, or is prepared by it: that
of an event, of a task, a copy, a chain's next step, a replay. A body that is too large leaves a
claim check in the headers. The message keeps a small body that Celery can read.

The body is registered as held by its message before it is put (spec F4), so that it is not deleted
before the message's claim has ended. Where that cannot be, it is put all the same, and is kept.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kombu import Producer

from angzarr.adapters.celery.worker.json_bodies import loads
from angzarr.delivery.delivery import position_of
from angzarr.events.event import digest
from angzarr.events.headers import event_id_of
from angzarr.payloads.claim_check import ARGUMENT, HEADER, ClaimCheck, write_check
from angzarr.payloads.holders import BodyRegistration, message_holder
from angzarr.payloads.store import Namer, PayloadStore, sha256_of
from angzarr.resilience.idempotency import key_for

#: Bytes of the largest body that every broker takes, by the scheme of its URL.
SAFE: Final[Mapping[str, int]] = {
    # 1 MiB a message, of which base64 takes a quarter, and headers their part.
    "sqs": 700_000,
    # 16 MiB from RabbitMQ 4 on (max_message_size).
    "amqp": 12 * 2**20,
    "amqps": 12 * 2**20,
    "pyamqp": 12 * 2**20,
}
#: Others, Redis among them, take far more; but what waits there is held in memory.
SAFE_ELSEWHERE: Final = 2**20

#: Characters of the followers of a task (callbacks, chain, chord) that stay in the message.
_LONGEST_EMBED: Final = 16 * 1024
_NO_FOLLOWERS: Final = dict.fromkeys(("callbacks", "errbacks", "chain", "chord"))
_PARTS: Final = 3
#: Seconds in which one body for several handlers is put once.
_SAME: Final = 5.0


def safe_size(broker: str) -> int:
    """The bytes of a body that the broker at the URL *broker* takes for certain."""
    return SAFE.get(broker.partition(":")[0].lower(), SAFE_ELSEWHERE)


@dataclass(frozen=True, slots=True)
class _Put:
    """A body that was just put, by its hash, and the message that stands for it."""

    sha256: str
    at: float
    check: ClaimCheck
    text: str
    body: bytes


@dataclass(slots=True)
class BodyOffloader:
    """Puts bodies of more than *most* bytes into *store*. Safe to use from many threads."""

    store: PayloadStore
    most: int
    #: None: no body is registered, and all are kept.
    registration: BodyRegistration | None = None
    monotonic: Callable[[], float] = time.monotonic
    _last: _Put | None = field(default=None, init=False)

    def offloaded(self, body: bytes, content_type: str, headers: dict[str, Any]) -> bytes:
        """The body to send in place of *body*, once that is in the store; *headers* say where.

        It is *body* itself where nothing can be stored: what is not a task of protocol 2 in JSON,
        and what stands for a stored body already. Raises PayloadStoreUnavailable: nothing was sent.
        """
        if HEADER in headers or not headers.get("task") or content_type != "application/json":
            return body
        sha256, last = sha256_of(body), self._last
        is_same = last and last.sha256 == sha256 and self.monotonic() - last.at <= _SAME
        if last is None or not is_same or not self._joins(last.check, headers):
            made = self._put(body, sha256, headers)
            if made is None:
                return body
            self._last = last = made
        headers[HEADER] = last.text
        return last.body

    def _put(self, body: bytes, sha256: str, headers: Mapping[str, Any]) -> _Put | None:
        parts = _parts_of(body)
        if parts is None:
            return None
        args, kwargs, embed = parts
        follows = len(json.dumps(embed)) > _LONGEST_EMBED
        told = digest([args, kwargs])
        reference = self.store.put(body, self._namer(headers, told))
        check = ClaimCheck(reference=reference, digest=told, follows=follows)
        left = _NO_FOLLOWERS if follows else embed
        said = {ARGUMENT: f"set payloads.url, or update this worker: {reference}"}
        text = json.dumps([[], said, left])
        return _Put(sha256, self.monotonic(), check, write_check(check), text.encode())

    def _namer(self, headers: Mapping[str, Any], told: str) -> Namer | None:
        """What registers the message with *headers*, whose arguments have the digest *told*."""
        if self.registration is None:
            return None
        replay = position_of(headers).replay
        return self.registration.namer(message_holder(_claim_key(headers), replay, told))

    def _joins(self, check: ClaimCheck, headers: Mapping[str, Any]) -> bool:
        """True if the message with *headers* may have the body of *check*, which it holds then."""
        hold = check.hold(_claim_key(headers), position_of(headers).replay)
        if self.registration is None or hold is None:  # it is kept for ever
            return True
        return self.registration.joins(hold)


def _claim_key(headers: Mapping[str, Any]) -> str:
    """The key by which the message with *headers* is claimed."""
    return key_for(str(headers["task"]), event_id_of(headers))


def _parts_of(body: bytes) -> tuple[Any, Any, Any] | None:
    """The args, kwargs and followers of *body*; None: it is not of protocol 2, or not JSON."""
    try:
        found = loads(body)
        if isinstance(found, list) and len(found) == _PARTS:
            args, kwargs, embed = found
            json.dumps(embed)
            return args, kwargs, embed
    except Exception:  # noqa: BLE001 - a copy of what came from a queue; who receives it judges it
        return None
    return None


class OffloadingProducer(Producer):
    """kombu's producer, but that large bodies of tasks are stored before they are sent."""

    def __init__(self, *args: Any, offloader: BodyOffloader, **options: Any) -> None:
        self._offloader = offloader
        super().__init__(*args, **options)

    def _prepare(  # noqa: PLR0917 - kombu's signature
        self,
        body: Any,
        serializer: Any = None,
        content_type: Any = None,
        content_encoding: Any = None,
        compression: Any = None,
        headers: Any = None,
    ) -> Any:
        """Serialize, and store what is too large even if it is compressed."""
        given = (body, serializer, content_type, content_encoding)
        prepared = super()._prepare(*given, compression, headers)
        if len(prepared[0]) <= self._offloader.most:
            return prepared
        # The store packs by itself.
        whole = super()._prepare(*given, None, {}) if compression else prepared
        raw = whole[0].encode() if isinstance(whole[0], str) else bytes(whole[0])
        sent = self._offloader.offloaded(raw, whole[1], headers)
        if sent is raw:
            return prepared
        headers.pop("compression", None)
        return sent, "application/json", "utf-8"

    def prepared(self, body: Any, options: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
        """*body* and *options* for a plain producer; a body that is too large is stored.

        For batches, of which nothing is sent before all bodies are stored.
        """
        if isinstance(body, str) and len(body) <= self._offloader.most and body.isascii():
            return body, options
        left = dict(options)
        headers = left["headers"]
        compression = left.pop("compression", None)
        given = (left.pop("serializer", None), left.get("content_type"))
        made, content_type, encoding = self._prepare(
            body, *given, left.get("content_encoding"), compression, headers
        )
        return made, {**left, "content_type": content_type, "content_encoding": encoding}
