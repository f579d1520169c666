"""BodySealer: bodies leave their publisher encrypted, and who has the key opens them (ADR 0091).

A sealed body says in its first line which key sealed it and how it was packed before. That line and
the id of its event are authenticated with it, so no body can be put in the place of another's.
Any change is refused, and nothing is unpacked or shown of a body that was not authenticated.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from angzarr.errors import PayloadCorrupt, PayloadKeyMissing
from angzarr.payloads.packed_store import Packing, UnpackedTooLarge, is_worth_it

#: What stands for the data of an event, and for texts of its arguments, where it is sealed.
SEALED: Final = "[sealed]"
#: Celery's texts of the arguments: in the headers of a task, and in its event ``task-sent``.
IN_HEADERS: Final = ("argsrepr", "kwargsrepr")
IN_EVENT: Final = ("args", "kwargs")
#: The ids of keys: letters, digits, '.', '_' and '-'.
KEY_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
#: Bytes that a sealed body has more than the body at most: its first line, nonce and tag.
OVERHEAD: Final = 200

_LINE: Final = re.compile(rb"angzarr-sealed/1 ([A-Za-z0-9._-]{1,64}) ([a-z0-9-]{1,20})\n")
_NOT_PACKED: Final = "-"
#: Keep apart what one key is used for.
_BODY: Final = b"angzarr body 1\x00"
_DIGEST: Final = b"angzarr body digest 1"


class NotOpened(Exception):
    """The bytes were changed, were sealed with another key, or belong to another event."""


class BodyCipher(Protocol):
    """Encrypts and authenticates; no error shows a key."""

    def encrypt(self, key: bytes, plain: bytes, context: bytes, /, *, head: bytes = b"") -> bytes:
        """*head*, and *plain* encrypted and bound to *context*; other bytes each time."""

    def decrypt(self, key: bytes, sealed: memoryview, context: bytes, /) -> bytes:
        """What was encrypted with *key* and bound to *context*; raises NotOpened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyKeys:
    """Keys of 32 bytes by id: *current* seals, unless the tenant has a key; each of them opens."""

    keys: Mapping[str, bytes] = field(repr=False)
    current: str
    #: The id of the key of a tenant, by the tenant's id.
    tenants: Mapping[str, str] = field(default_factory=dict)

    def of_tenant(self, tenant: object) -> str:
        """The id of the key that seals the bodies of *tenant*."""
        return self.tenants.get(tenant, self.current) if isinstance(tenant, str) else self.current

    def of_copy(self, key: str, *tenants: object) -> str:
        """The id of the key that seals what is made of a body that came sealed with *key*.

        It is that of the first of *tenants* that has one here. Else it is *key* itself, which may
        be a tenant's of whom only the publisher knows: so it is forgotten with all the others.
        """
        known = [name for name in tenants if isinstance(name, str) and name in self.tenants]
        named = self.tenants[known[0]] if known else key
        return named if named in self.keys else self.current


class SealLine(NamedTuple):
    """What a sealed body says of itself: the id of its key, and the name of its packing."""

    key: str
    packing: str
    #: The line itself.
    text: bytes


def seal_line(sealed: bytes) -> SealLine | None:
    """The first line of *sealed*; None: it is not a sealed body."""
    if (found := _LINE.match(sealed)) is None:
        return None
    key, packing = (part.decode() for part in found.groups())
    return SealLine(key, "" if packing == _NOT_PACKED else packing, found[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class BodySealer:
    """Seals and opens bodies. Safe to use from many threads.

    *packing* packs what is stored, where that pays; *known* are the packings of what is opened.
    """

    keys: BodyKeys
    cipher: BodyCipher
    packing: Packing | None = None
    known: Mapping[str, Packing] = field(default_factory=dict)

    def seal(self, body: bytes, event_id: str, key: str, *, packs: bool = False) -> bytes:
        """*body*, sealed with the key *key* for the event *event_id* and no other."""
        name, packed = _NOT_PACKED, body
        if packs and self.packing is not None:
            smaller = self.packing.pack(body)
            if is_worth_it(smaller, body):
                name, packed = self.packing.name, smaller
        line = f"angzarr-sealed/1 {key} {name}\n".encode()
        context = _context(line, event_id)
        return self.cipher.encrypt(self.keys.keys[key], packed, context, head=line)

    def open(self, sealed: bytes, event_id: str, size: int, key: str) -> bytes:
        """The body of *size* bytes that was sealed for the event *event_id*.

        *key* is the id that its message names: what is made of the body is sealed by that. Raises
        PayloadKeyMissing for a key that is not here, PayloadCorrupt for what was changed.
        """
        line = seal_line(sealed)
        if line is None:
            msg = "its body is corrupt: it does not begin as an encrypted body does"
            raise PayloadCorrupt(msg)
        if line.key != key:
            msg = (
                f"its body is corrupt: it is encrypted with the key {line.key!r}, and its message"
                f" names the key {key!r}"
            )
            raise PayloadCorrupt(msg)
        secret = self.keys.keys.get(key)
        if secret is None:
            raise PayloadKeyMissing(missing(key))
        try:
            context = _context(line.text, event_id)
            packed = self.cipher.decrypt(secret, memoryview(sealed)[len(line.text) :], context)
        except NotOpened:
            msg = (
                f"its body cannot be opened with the key {line.key!r}: it was changed or belongs"
                " to another event, or the key here is another one of that name"
            )
            raise PayloadCorrupt(msg) from None
        body = self._unpacked(packed, line.packing, size)
        if len(body) != size:
            msg = f"its body is corrupt: it does not have the {size} bytes that its message names"
            raise PayloadCorrupt(msg)
        return body

    def _unpacked(self, packed: bytes, name: str, size: int) -> bytes:
        if not name:
            return packed
        packing = self.known.get(name)
        if packing is None:
            msg = f"its body is packed by {name!r}, which is not installed here: install it"
            raise PayloadCorrupt(msg)
        try:
            return packing.unpack(packed, size)
        except (UnpackedTooLarge, ValueError) as error:
            msg = f"its body is corrupt: it cannot be unpacked: {error}"
            raise PayloadCorrupt(msg) from error

    def digest(self, key: str, event_id: str, digest: str) -> str:
        """*digest*, that of an event's arguments, keyed: without the key it proves no guess.

        Two events with the same arguments have two; one event has one, for one key.
        """
        chooser = hmac.digest(self.keys.keys[key], _DIGEST, "sha256")
        told = event_id.encode("utf-8", "surrogatepass") + b"\x00" + digest.encode()
        return hmac.digest(chooser, told, "sha256").hex()


def hide(fields: dict[str, Any], names: Sequence[str]) -> None:
    """Let those of *names* that *fields* have something of show that it is sealed."""
    fields |= {name: SEALED for name in names if fields.get(name)}


def missing(key: str) -> str:
    """Why a body that was sealed with *key* cannot be opened here, and what to do."""
    return (
        f"its body is encrypted with the key {key!r}, which is not among"
        " payloads.encryption_keys of this app: add it, then replay it"
    )


def _context(line: bytes, event_id: str) -> bytes:
    return _BODY + line + event_id.encode("utf-8", "surrogatepass")
