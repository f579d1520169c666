"""What stands in a message for its sealed body: one argument, which has the body as text. Pure."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, Final

from angzarr.errors import DecodeError
from angzarr.payloads.body_sealer import OVERHEAD, BodySealer, seal_line
from angzarr.payloads.claim_check import ARGUMENT as STORED_ARGUMENT
from angzarr.payloads.claim_check import ClaimCheck, inline_reference

#: The argument that has the sealed body, in base64. No handler has one of this name, so one that
#: knows nothing of sealed bodies fails by it, and names it.
ARGUMENT: Final = "angzarr_body_is_encrypted"
#: What a body says of what follows its task, if nothing does.
NO_FOLLOWERS: Final = dict.fromkeys(("callbacks", "errbacks", "chain", "chord"))
#: The body of a message whose own is in the payload store, sealed.
STORED_BODY: Final = json.dumps(
    [
        [],
        {
            STORED_ARGUMENT: "it is encrypted: set payloads.url and payloads.encryption_keys, or"
            " update this worker"
        },
        NO_FOLLOWERS,
    ]
).encode()
#: Characters around the text of a sealed body.
_FRAME: Final = 200
_PARTS: Final = 3


def sealed_body(sealed: bytes) -> bytes:
    """The body, of Celery's protocol 2, of a message that has *sealed* in itself."""
    text = base64.b64encode(sealed).decode("ascii")
    return json.dumps([[], {ARGUMENT: text}, NO_FOLLOWERS]).encode()


def sealed_check(
    sealer: BodySealer, sealed: bytes, size: int, *, event_id: str, named: str, follows: bool
) -> ClaimCheck:
    """The claim check of a message that has *sealed* in itself, a body of *size* bytes.

    *named* is the digest of the arguments, and *follows* says if the body has followers.
    """
    line = seal_line(sealed)
    assert line is not None  # noqa: S101 - a sealer made it
    reference = inline_reference(len(sealed), size)
    told = sealer.digest(line.key, event_id, named)
    return ClaimCheck(reference=reference, digest=told, follows=follows, key=line.key)


def has_followers(embed: Any) -> bool:
    """True if *embed*, that of a body, names what follows the task."""
    return embed not in (None, {}, NO_FOLLOWERS)


def sealed_size(size: int) -> int:
    """The bytes of the body of a message that has a body of *size* bytes, sealed, at most."""
    return (size + OVERHEAD) * 4 // 3 + _FRAME


def sealed_in(kwargs: Mapping[str, Any]) -> bytes:
    """The sealed body in the arguments of a message; raises DecodeError."""
    text = kwargs.get(ARGUMENT)
    try:
        if isinstance(text, str):
            return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        pass
    msg = f"its argument {ARGUMENT} is not the encrypted body that its header announces"
    raise DecodeError(msg)


def find_sealed(body: bytes) -> bytes | None:
    """The sealed body in *body*, that of a message; None: it has another."""
    if ARGUMENT.encode() not in body[:_FRAME]:
        return None
    try:
        parts = json.loads(body)
        if len(parts) != _PARTS or parts[0] != [] or list(parts[1]) != [ARGUMENT]:
            return None
        sealed = sealed_in(parts[1])
    except (ValueError, TypeError, RecursionError, DecodeError):
        return None
    return sealed if seal_line(sealed) is not None and parts[2] == NO_FOLLOWERS else None


def is_sealed_body(body: bytes) -> bool:
    """True if *body*, that of a message, shows nothing: what it stands for is sealed."""
    return body == STORED_BODY or find_sealed(body) is not None
