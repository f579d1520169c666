"""ClaimCheck: what a message says of its body that lies in a payload store (spec F4). Pure.

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
from angzarr.payloads.holders import PayloadHold, hold_of, message_holder
from angzarr.payloads.store import PayloadReference, StorageKind

#: The name of the header. It begins like all names that only this package may set.
HEADER: Final = "angzarr-payload"
#: The argument that stands in the body: no handler has one of this name, so one that knows nothing
#: of payloads fails by it, and names it.
ARGUMENT: Final = "angzarr_body_is_in_payload_store"

#: Characters of the header: an address of S3 has a thousand, and the rest is short.
_LONGEST: Final = 4096
_MOST_BYTES: Final = 2**53
_SHA256: Final = re.compile("[0-9a-f]{64}")
_NAME: Final = re.compile("[a-z0-9-]{0,20}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimCheck:
    """Where a message's body lies; `digest` is that of its arguments, by which it is claimed."""

    reference: PayloadReference
    digest: str
    #: Whether what follows the task (callbacks, chain, chord) lies with the body, too.
    follows: bool = False

    def hold(self, claim_key: str, replay: int) -> PayloadHold | None:
        """The hold of the message with *claim_key* on its body; None: it was not registered."""
        return hold_of(self.reference.uri, message_holder(claim_key, replay, self.digest))


def write_check(check: ClaimCheck) -> str:
    """*check* as the header's text."""
    reference = check.reference
    told: dict[str, Any] = {
        "uri": reference.uri,
        "sha256": reference.sha256,
        "size": reference.size,
        "kind": reference.kind.value,
        "digest": check.digest,
    }
    if reference.encoding:
        told |= {
            "encoding": reference.encoding,
            "unpacked_size": reference.unpacked_size,
            "unpacked_sha256": reference.unpacked_sha256,
        }
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
    sizes = [told.get(name, 0) for name in ("size", "unpacked_size")]
    if not all(type(size) is int and 0 <= size <= _MOST_BYTES for size in sizes):
        raise _malformed("its size is not a number of bytes")
    uri, encoding = told.get("uri"), told.get("encoding", "")
    if not isinstance(uri, str) or not uri:
        raise _malformed("it names no place")
    if not isinstance(encoding, str) or not _NAME.fullmatch(encoding):
        raise _malformed("its encoding is not a name")
    names = ("sha256", "digest", "unpacked_sha256") if encoding else ("sha256", "digest")
    hashes = [told.get(name) for name in names]
    if not all(isinstance(one, str) and _SHA256.fullmatch(one) for one in hashes):
        raise _malformed("its hashes are not SHA-256")
    sha256, digest, *unpacked = map(str, hashes)
    reference = PayloadReference(
        kind=_kind(told.get("kind")),
        uri=uri,
        sha256=sha256,
        size=sizes[0],
        encoding=encoding,
        unpacked_size=sizes[1],
        unpacked_sha256="".join(unpacked),
    )
    follows = told.get("follows") is True
    return ClaimCheck(reference=reference, digest=digest, follows=follows)


def digest_in(headers: Mapping[str, Any]) -> str | None:
    """The digest of the arguments as *headers* tell it; None: the body has to be read."""
    try:
        check = check_in(headers)
    except DecodeError:
        return None  # it ends as a letter, and of what it says nothing is claimed
    return None if check is None else check.digest


def without_check(headers: Mapping[str, Any]) -> Mapping[str, Any]:
    """*headers* of a message that has its body."""
    if HEADER not in headers:
        return headers
    return {name: value for name, value in headers.items() if name != HEADER}


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


def _kind(said: object) -> StorageKind:
    try:
        return StorageKind(str(said))
    except ValueError:
        return StorageKind.UNSPECIFIED


def _malformed(why: str) -> DecodeError:
    return DecodeError(f"its header {HEADER} does not say where its body lies: {why}")
