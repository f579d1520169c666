"""XAES-256-GCM (https://c2sp.org/XAES-256-GCM): AES-256-GCM with nonces of 24 bytes.

A key of AES-GCM may encrypt 2**32 messages with random nonces, which a busy queue sends in weeks.
With 24 bytes the bound is out of reach: each message has a key of its own, derived by CMAC.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.cmac import CMAC

from angzarr.payloads.body_sealer import NotOpened

#: Bytes of a nonce: the first half chooses the key of one message, the second is its own nonce.
NONCE_BYTES: Final = 24
_HALF: Final = NONCE_BYTES // 2
_TAG_BYTES: Final = 16
#: What stands before the nonce's first half where each half of a message's key is derived.
_HALVES: Final = (b"\x00\x01X\x00", b"\x00\x02X\x00")


class XaesCipher:
    """Encrypts bodies under keys of 32 bytes: a nonce, the text encrypted, a tag of 16 bytes."""

    overhead = NONCE_BYTES + _TAG_BYTES

    def __init__(self, random: Callable[[int], bytes] = os.urandom) -> None:
        self._random = random

    def encrypt(self, key: bytes, plain: bytes, context: bytes, /, *, head: bytes = b"") -> bytes:
        """*head*, and *plain* encrypted and bound to *context*; other bytes each time."""
        nonce = self._random(NONCE_BYTES)
        encrypted = _message_cipher(key, nonce).encrypt(nonce[_HALF:], plain, context)
        return b"".join((head, nonce, encrypted))  # copied once: it may be large

    def decrypt(self, key: bytes, sealed: memoryview, context: bytes, /) -> bytes:
        """What was encrypted with *key* and bound to *context*; raises NotOpened."""
        if len(sealed) < self.overhead:
            raise NotOpened
        nonce = bytes(sealed[:NONCE_BYTES])
        try:
            return _message_cipher(key, nonce).decrypt(nonce[_HALF:], sealed[NONCE_BYTES:], context)
        except InvalidTag:
            raise NotOpened from None


def _message_cipher(key: bytes, nonce: bytes) -> AESGCM:
    """AES-256-GCM with the key of the one message whose nonce begins like *nonce*."""
    return AESGCM(b"".join(_derived(key, head + nonce[:_HALF]) for head in _HALVES))


def _derived(key: bytes, block: bytes) -> bytes:
    mac = CMAC(AES(key))
    mac.update(block)
    return mac.finalize()
