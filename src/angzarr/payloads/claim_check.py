"""ClaimCheck: what a message says of its body that lies in a payload store (spec F4). Pure.

Or of a body that is encrypted (ADR 0091): such a one lies in the store, or in the message itself.
The header is JSON. Queues are hostile: what it says is read within bounds and believed of nothing;
the store itself decides what is fetched for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from angzarr.errors import DecodeError
from angzarr.payloads.body_sealer import KEY_ID
from angzarr.payloads.holders import PayloadHold, hold_of, message_holder
from angzarr.payloads.store import SEALED_ENCODING, PayloadReference, StorageKind

#: The name of the header. It begins like all names that only this package may set.
HEADER: Final = "angzarr-payload"
#: The argument that stands in the body: no handler has one of this name, so one that knows nothing
#: of payloads fails by it, and names it.
ARGUMENT: Final = "angzarr_body_is_in_payload_store"

#: Headers that tell of the body as it came: where it lies, and how the broker had it packed.
_OF_THE_BODY: Final = frozenset({HEADER, "compression"})
#: Characters of the header: an address of S3 has a thousand, and the rest is short.
_LONGEST: Final = 4096
_MOST_BYTES: Final = 2**53
_SHA256: Final = re.compile("[0-9a-f]{64}")
_NAME: Final = re.compile("[a-z0-9-]{0,20}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimCheck:
    """Where a message's body lies; `digest` is that of its arguments, by which it is claimed.

    Of a sealed body the digest is keyed, and `key` is the id of the key that sealed it.
    """

    reference: PayloadReference
    digest: str
    #: Whether what follows the task (callbacks, chain, chord) lies with the body, too.
    follows: bool = False
    key: str = ""

    @property
    def is_inline(self) -> bool:
        """True if the message itself has the body, sealed."""
        return bool(self.key) and not self.reference.uri

    @property
    def fingerprint(self) -> str:
        """What tells that one event has two bodies; comparable where it was made by one key."""
        return f"{self.key}:{self.digest}" if self.key else self.digest

    def hold(self, claim_key: str, replay: int) -> PayloadHold | None:
        """The hold of the message with *claim_key* on its body; None: it was not registered."""
        return hold_of(self.reference.uri, message_holder(claim_key, replay, self.digest))


def inline_reference(size: int, unpacked_size: int) -> PayloadReference:
    """The reference to a sealed body of *size* bytes that is in its message."""
    return PayloadReference(
        kind=StorageKind.UNSPECIFIED,
        uri="",
        sha256="",
        size=size,
        encoding=SEALED_ENCODING,
        unpacked_size=unpacked_size,
    )


def write_check(check: ClaimCheck) -> str:
    """*check* as the header's text."""
    reference = check.reference
    told: dict[str, Any] = {"size": reference.size, "digest": check.digest}
    if not check.is_inline:
        told |= {
            "uri": reference.uri,
            "sha256": reference.sha256,
            "kind": reference.kind.value,
        }
    if reference.encoding:
        told |= {"encoding": reference.encoding, "unpacked_size": reference.unpacked_size}
        if check.key:
            told["key"] = check.key
        else:
            told["unpacked_sha256"] = reference.unpacked_sha256
    if check.follows:
        told["follows"] = True
    return json.dumps(told)


def check_in(headers: Mapping[str, Any]) -> ClaimCheck | None:
    """The claim check in *headers*; None: the message has its body.

    Raises DecodeError where the header is not what `write_check` writes.
    """
    text = headers.get(HEADER)
    if text is None:
        return None
    told = _object_in(text)
    encoding, key = told.get("encoding", ""), _key_in(told)
    sizes = [told.get(name, 0) for name in ("size", "unpacked_size")]
    if not all(type(size) is int and 0 <= size <= _MOST_BYTES for size in sizes):
        raise _malformed("its size is not a number of bytes")
    uri = told.get("uri", "" if key else None)
    if not isinstance(uri, str) or not (uri or key):
        raise _malformed("it names no place")
    if not isinstance(encoding, str) or not _NAME.fullmatch(encoding):
        raise _malformed("its encoding is not a name")
    names = ["digest", *(["sha256"] if uri else ())]
    names += ["unpacked_sha256"] if encoding and not key else []
    hashes = {name: told.get(name) for name in names}
    if not all(isinstance(one, str) and _SHA256.fullmatch(one) for one in hashes.values()):
        raise _malformed("its hashes are not SHA-256")
    reference = PayloadReference(
        kind=_kind(told.get("kind")),
        uri=uri,
        sha256=str(hashes.get("sha256", "")),
        size=sizes[0],
        encoding=encoding,
        unpacked_size=sizes[1],
        unpacked_sha256=str(hashes.get("unpacked_sha256", "")),
    )
    follows = told.get("follows") is True
    return ClaimCheck(reference=reference, digest=str(hashes["digest"]), follows=follows, key=key)


def fingerprint_in(headers: Mapping[str, Any]) -> str | None:
    """What *headers* tell of the arguments for a claim; None: the body has to be read."""
    try:
        check = check_in(headers)
    except DecodeError:
        return None  # it ends as a letter, and of what it says nothing is claimed
    return None if check is None else check.fingerprint


def may_be_followed(headers: Mapping[str, Any]) -> bool:
    """True if what follows the task with *headers* may lie with its body, and not in its message.

    Else the message says all of it, before its body is there.
    """
    try:
        check = check_in(headers)
    except DecodeError:
        return True
    return check is not None and check.follows


def without_check(headers: Mapping[str, Any]) -> Mapping[str, Any]:
    """*headers* of a message that has its body, in place of the one that it came with."""
    if _OF_THE_BODY.isdisjoint(headers):
        return headers
    return {name: value for name, value in headers.items() if name not in _OF_THE_BODY}


def _object_in(text: object) -> dict[str, Any]:
    if not isinstance(text, str) or len(text) > _LONGEST:
        raise _malformed("it is not a short text")
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        raise _malformed("it is not JSON") from None
    if not isinstance(told, dict):
        raise _malformed("it is not a JSON object")
    return told


def _key_in(told: Mapping[str, Any]) -> str:
    """The id of the key that sealed the body; empty: it is not sealed."""
    if told.get("encoding") != SEALED_ENCODING:
        return ""
    key = told.get("key")
    if not isinstance(key, str) or not KEY_ID.match(key):
        raise _malformed("it names no key")
    return key


def _kind(said: object) -> StorageKind:
    try:
        return StorageKind(str(said))
    except ValueError:
        return StorageKind.UNSPECIFIED


def _malformed(why: str) -> DecodeError:
    return DecodeError(f"its header {HEADER} does not say where its body lies: {why}")
