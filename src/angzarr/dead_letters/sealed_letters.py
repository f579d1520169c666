"""SealedLetters: opens letters whose body is encrypted, for who may see it, and seals edited ones.

A letter keeps the message as it came (ADR 0091), so a replay opens nothing. An edit and a
compensation need what is inside. What they make is sealed again before it is kept.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Final

from angzarr.dead_letters.letter import DeadLetter, Refusal
from angzarr.errors import (
    DecodeError,
    PayloadCorrupt,
    PayloadElsewhere,
    PayloadGone,
    PayloadKeyMissing,
    PayloadTooLarge,
)
from angzarr.events.event import digest
from angzarr.events.headers import event_id_of
from angzarr.payloads.body_sealer import SEALED, BodySealer, missing
from angzarr.payloads.claim_check import (
    HEADER,
    ClaimCheck,
    check_in,
    without_check,
    write_check,
)
from angzarr.payloads.sealed_message import (
    find_sealed,
    has_followers,
    is_sealed_body,
    sealed_body,
    sealed_check,
)
from angzarr.payloads.store import PayloadStore

#: Bytes of a body that is opened at most, where no setting says so.
MOST_OPENED: Final = 16 * 1024 * 1024


def has_sealed_body(letter: DeadLetter) -> bool:
    """True if the message of *letter* is encrypted as its publisher sent it."""
    return HEADER in letter.message.headers and is_sealed_body(letter.message.body)


def came_encrypted(letter: DeadLetter) -> bool:
    """True if the publisher of *letter*'s message encrypted its body, wherever that is now."""
    try:
        return HEADER in letter.message.headers and bool(_check_in(letter).key)
    except DecodeError:  # it is opened for nobody
        return False


def body_key(letter: DeadLetter) -> str:
    """The id of the key that the body of *letter* names; empty: it is not encrypted."""
    try:
        return _check_in(letter).key if has_sealed_body(letter) else ""
    except DecodeError:
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedLetters:
    """Opens bodies of letters, of *most* bytes at most. Without a sealer this app has no keys."""

    sealer: BodySealer | None = None
    most: int = MOST_OPENED

    def opened(self, letter: DeadLetter, store: PayloadStore | None) -> DeadLetter | Refusal:
        """*letter* with its body, and the data in its event; or why it cannot be opened here.

        One whose body is not encrypted is returned as it is. Raises PayloadStoreUnavailable, and
        PayloadTooLarge where *store* gives no more to people.
        """
        if not has_sealed_body(letter):
            return letter
        try:
            body = self._body(letter, store)
        except (PayloadGone, PayloadCorrupt, PayloadKeyMissing, DecodeError) as error:
            return Refusal(error)
        message = replace(letter.message, body=body, headers=without_check(letter.message.headers))
        return replace(letter, message=message, payload=None)

    def _body(self, letter: DeadLetter, store: PayloadStore | None) -> bytes:
        """The body of *letter*, opened; raises what says why it cannot be had."""
        check = _check_in(letter)
        if self.sealer is None:
            raise PayloadKeyMissing(missing(check.key))
        if check.reference.unpacked_size > self.most:
            msg = f"its body is larger than {self.most} bytes (message.most_unpacked)"
            raise PayloadTooLarge(msg)
        if check.is_inline:
            sealed = find_sealed(letter.message.body) or b""
        elif store is None:
            msg = f"its body lies at {check.reference}, and this app has no payloads.url: set it"
            raise PayloadElsewhere(msg)
        else:
            sealed = store.fetch(check.reference)
        event_id = event_id_of(letter.message.headers)
        return self.sealer.open(sealed, event_id, check.reference.unpacked_size, check.key)

    def sealed(self, made: DeadLetter, came: DeadLetter) -> DeadLetter | Refusal:
        """*made*, the edit of *came*, with its body sealed as that of *came* was.

        By the key of its tenant here, else by the one that it came with: this app may not know that
        the key is a tenant's. So the tenant can still be forgotten (ADR 0091).
        """
        if self.sealer is None:
            return Refusal(
                "its body came encrypted, and this app has no payloads.encryption_keys: add them"
            )
        try:
            args, kwargs, embed = json.loads(made.message.body)
        except (ValueError, TypeError, RecursionError):
            return Refusal("its message holds no arguments: it cannot be encrypted")
        event_id, body = event_id_of(made.message.headers), made.message.body
        tenant = made.event.tenant_id if made.event else None
        key = self.sealer.keys.of_copy(_check_in(came).key, tenant)
        sealed = self.sealer.seal(body, event_id, key)
        named, follows = digest([args, kwargs]), has_followers(embed)
        check = sealed_check(
            self.sealer, sealed, len(body), event_id=event_id, named=named, follows=follows
        )
        headers = {**made.message.headers, HEADER: write_check(check)}
        message = replace(made.message, body=sealed_body(sealed), headers=headers)
        event = made.event and replace(made.event, data=SEALED)
        return replace(made, message=message, event=event, payload=None)


def _check_in(letter: DeadLetter) -> ClaimCheck:
    """The claim check of *letter*, whose body is sealed; raises DecodeError."""
    check = check_in(letter.message.headers)
    if check is None or not check.key:
        msg = f"its body is encrypted, and its header {HEADER} does not name the key"
        raise DecodeError(msg)
    return check
