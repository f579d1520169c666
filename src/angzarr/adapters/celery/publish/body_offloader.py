"""BodyOffloader: what is too large for the broker goes to the payload store before it is sent.

Every message of a task passes it, by way of `OffloadingProducer`: that of an event, of a task, a
copy, a chain's next step, a replay. A body that is too large leaves a claim check in the headers.
The message keeps a small body that Celery can read. Where bodies are to be encrypted, they are
before they are stored or sent (ADR 0091); what is made of a message that came encrypted always is.

A body is registered as held by its message before it is put (spec F4), so that it is not deleted
before the message's claim has ended. Where that cannot be, it is put all the same, and is kept.

A body that is sealed again has other bytes. So a message that is sent again names the sealed body
that was put for it, and a sealed body whose put failed is held no longer.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from angzarr.adapters.celery.publish.put_bodies import PutBodies, PutBody
from angzarr.adapters.celery.worker.json_bodies import loads
from angzarr.delivery.delivery import position_of
from angzarr.delivery.sealed_origin import SealedOrigin
from angzarr.errors import DecodeError, PayloadKeyMissing, UnserializableEvent
from angzarr.events.event import Message, digest
from angzarr.events.headers import TENANT_ID, event_id_of
from angzarr.payloads.body_sealer import IN_HEADERS, BodyKeys, BodySealer, hide, missing
from angzarr.payloads.claim_check import (
    ARGUMENT,
    HEADER,
    ClaimCheck,
    check_in,
    write_check,
)
from angzarr.payloads.holders import BodyRegistration, message_holder
from angzarr.payloads.sealed_message import (
    NO_FOLLOWERS,
    STORED_BODY,
    find_sealed,
    has_followers,
    sealed_body,
    sealed_check,
    sealed_size,
)
from angzarr.payloads.store import (
    SEALED_ENCODING,
    Namer,
    PayloadReference,
    PayloadStore,
    sha256_of,
)
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
_PARTS: Final = 3
_JSON: Final = "application/json"
#: What a body of protocol 2 begins with.
_LIST: Final = b"["


def safe_size(broker: str) -> int:
    """The bytes of a body that the broker at the URL *broker* takes for certain."""
    return SAFE.get(broker.partition(":")[0].lower(), SAFE_ELSEWHERE)


@dataclass(slots=True)
class BodyOffloader:
    """Puts bodies of more than *most* bytes into *store*. Safe to use from many threads.

    With a *sealer* they are encrypted before if *seals_stored*, and if *seals_all* those that are
    sent are, too. What comes from a `SealedOrigin` is encrypted in any case.
    """

    #: None: nothing is stored, only encrypted.
    store: PayloadStore | None
    most: int
    #: None: no body is registered, and all are kept.
    registration: BodyRegistration | None = None
    monotonic: Callable[[], float] = time.monotonic
    sealer: BodySealer | None = None
    seals_stored: bool = True
    seals_all: bool = False
    _put_bodies: PutBodies = field(init=False)

    def __post_init__(self) -> None:
        self._put_bodies = PutBodies(self.monotonic, self.registration)

    def leaves(self, size: int, origin: SealedOrigin | None = None) -> bool:
        """True if a body of *size* bytes, of what is made of *origin*, is sent as it is."""
        return size <= self.most and not (self.seals_all or origin)

    def offloaded(
        self,
        body: bytes,
        content_type: str,
        headers: dict[str, Any],
        origin: SealedOrigin | None = None,
    ) -> bytes:
        """The body to send in place of *body*, once that is in the store; *headers* say where.

        It is *body* itself where nothing can be stored: what is not a task of protocol 2 in JSON,
        and what stands for a stored body already. Raises PayloadStoreUnavailable: nothing was sent.
        PayloadKeyMissing: it is made of what came encrypted from *origin*, and there are no keys.
        """
        if HEADER in headers:
            return body if len(body) <= self.most else self._moved(body, headers)
        if not headers.get("task") or content_type != _JSON:
            return body
        if (sealer := self._sealer_of(origin)) is not None:
            return self._sealed(body, headers, sealer, origin)
        if self.store is None:
            return body
        name = sha256_of(body)
        if (made := self._found(name, headers)) is None:
            made = self._put(body, name, headers)
            if made is None:
                return body
            self._put_bodies.keep(made)
        headers[HEADER] = made.text
        return made.body

    def hold_replay(self, headers: Mapping[str, Any]) -> None:
        """Note that a replay with *headers* holds the stored body that they name; never raises.

        Its letter holds that, too, but perhaps not for as long: a register that is away now leaves
        it to the letter. A copy has the hold of its message.
        """
        position = position_of(headers)
        if position.hop or not position.replay or self.registration is None:
            return
        try:
            check = check_in(headers)
        except DecodeError:  # who receives it judges it
            return
        hold = check and check.hold(_claim_key(headers), position.replay)
        if hold:
            self.registration.join_replay(hold)

    def sealed(self, message: Message) -> Message:
        """*message* as it may wait in a table: sealed, if all that is sent is."""
        return self.prepared(message, None) if self.seals_all else message

    def prepared(self, message: Message, origin: SealedOrigin | None) -> Message:
        """*message* as it is sent; see `MessageBodies`."""
        if self.leaves(len(message.body), origin):
            return message
        headers = dict(message.headers)
        body = self.offloaded(message.body, message.content_type, headers, origin)
        if body is not message.body:
            return replace(message, body=body, headers=headers)
        if origin is not None:
            check_sealed(headers, message.content_type)
        return message

    def _sealer_of(self, origin: SealedOrigin | None) -> BodySealer | None:
        """What seals a body that is to be stored, or what is made of *origin*; None: it stays."""
        if origin is not None:
            if self.sealer is None:
                raise PayloadKeyMissing(missing(origin.key))
            return self.sealer
        stores = self.seals_stored and self.store is not None
        return self.sealer if self.seals_all or stores else None

    def _found(self, name: str, headers: Mapping[str, Any]) -> PutBody | None:
        """What was put of *name*, if the message with *headers* may have it too, and holds it."""
        replay = position_of(headers).replay
        return self._put_bodies.find(name, lambda check: check.hold(_claim_key(headers), replay))

    def _put(self, body: bytes, name: str, headers: Mapping[str, Any]) -> PutBody | None:
        parts = _parts_of(body)
        if parts is None or self.store is None:
            return None
        args, kwargs, embed = parts
        follows = len(json.dumps(embed)) > _LONGEST_EMBED
        told = digest([args, kwargs])
        reference = self.store.put(body, self._namer(headers, told))
        check = ClaimCheck(reference=reference, digest=told, follows=follows)
        left = NO_FOLLOWERS if follows else embed
        said = {ARGUMENT: f"set payloads.url, or update this worker: {reference}"}
        text = json.dumps([[], said, left])
        return PutBody(name, self.monotonic(), check, write_check(check), text.encode())

    def _sealed(
        self,
        body: bytes,
        headers: dict[str, Any],
        sealer: BodySealer,
        origin: SealedOrigin | None,
    ) -> bytes:
        """The body to send in place of *body*, which is sealed for the event of *headers*."""
        event_id, key = event_id_of(headers), _key_of(sealer.keys, headers, origin)
        inline = self.seals_all or origin is not None
        stores = self.store is not None and (not inline or sealed_size(len(body)) > self.most)
        name = f"{sha256_of(body)} {key} {event_id}" if stores else ""
        made = self._found(name, headers) if stores else None
        if made is None:
            parts = _parts_of(body)
            if parts is None and not body.lstrip().startswith(_LIST):
                return body
            sealed = sealer.seal(body, event_id, key, packs=stores)
            if parts is None:  # its worker will refuse it, but what it says stays secret
                named, follows = sha256_of(body), True
            else:
                named, follows = digest(parts[:2]), has_followers(parts[2])
            check = sealed_check(
                sealer, sealed, len(body), event_id=event_id, named=named, follows=follows
            )
            if stores:
                place = self._placed(sealed, len(body), _holder(headers, check.digest))
                check = replace(check, reference=place)
            left = STORED_BODY if stores else sealed_body(sealed)
            made = PutBody(name, self.monotonic(), check, write_check(check), left)
            if stores:
                self._put_bodies.keep(made)
        headers[HEADER] = made.text
        hide(headers, IN_HEADERS)
        return made.body

    def _moved(self, body: bytes, headers: dict[str, Any]) -> bytes:
        """The body to send in place of *body*, which is sealed in its message: it is stored.

        So goes what another broker took, or what a person's edit made larger.
        """
        sealed = find_sealed(body)
        if sealed is None or self.store is None:
            return body
        try:
            check = check_in(headers)
        except DecodeError:  # who receives it judges it
            return body
        if check is None or not check.is_inline:
            return body
        # It has these bytes at each try: a try that failed may be held by an earlier one.
        place = self.store.put(sealed, self._namer(headers, check.digest))
        size = check.reference.unpacked_size
        place = replace(place, encoding=SEALED_ENCODING, unpacked_size=size)
        headers[HEADER] = write_check(replace(check, reference=place))
        return STORED_BODY

    def _placed(self, sealed: bytes, size: int, holder: str) -> PayloadReference:
        """Where *sealed*, of a body of *size* bytes, is in the store, held by *holder*."""
        assert self.store is not None  # noqa: S101 - its caller has looked
        if self.registration is None:
            place = self.store.put(sealed)
        else:
            place = self.registration.put_new(sealed, self.store, holder)
        return replace(place, encoding=SEALED_ENCODING, unpacked_size=size)

    def _namer(self, headers: Mapping[str, Any], told: str) -> Namer | None:
        """What registers the message with *headers*, whose arguments have the digest *told*."""
        if self.registration is None:
            return None
        return self.registration.namer(_holder(headers, told))


def check_sealed(headers: Mapping[str, Any], content_type: str) -> None:
    """Raise UnserializableEvent for a task that was to be sealed, and would be sent as it is."""
    if headers.get("task") and HEADER not in headers:
        raise not_sealable(content_type)


def not_sealable(what: str) -> UnserializableEvent:
    """The error of a task that cannot be sealed, since it is *what*."""
    return UnserializableEvent(
        f"only tasks of Celery's protocol 2 in JSON can be encrypted, and this one is {what}:"
        " set task_serializer to json and task_protocol to 2"
    )


def _key_of(keys: BodyKeys, headers: Mapping[str, Any], origin: SealedOrigin | None) -> str:
    """The id of the key that seals the message with *headers*, made of *origin* if of any."""
    tenant = headers.get(TENANT_ID)
    if origin is None:
        return keys.of_tenant(tenant)
    return keys.of_copy(origin.key, tenant, origin.tenant)


def _holder(headers: Mapping[str, Any], told: str) -> str:
    """The holder that the message with *headers* is, whose arguments have the digest *told*."""
    return message_holder(_claim_key(headers), position_of(headers).replay, told)


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
