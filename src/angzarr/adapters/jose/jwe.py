"""Sealing as JWE (RFC 7516): compact, `dir`, A256GCM, the key named by `kid`."""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from typing import Any, Final

from joserfc.errors import JoseError
from joserfc.jwa import GCMEncModel
from joserfc.jwe import JWERegistry, decrypt_compact, encrypt_compact
from joserfc.jwk import OctKey

from angzarr.dead_letters.codec import MAX_LETTER_BYTES
from angzarr.dead_letters.letter import Refusal
from angzarr.runtime.failures import is_machine_fault

_ALG: Final = "dir"
_ENC: Final = "A256GCM"
_CONTENT: Final = 'application/x-protobuf; messageType="angzarr.worker.TaskMessage"'
_IV_BYTES: Final = 12
#: Keeps the key that chooses initialization vectors apart from the one that encrypts.
_IV_PURPOSE: Final = b"angzarr letter iv 1"


class _Registry(JWERegistry):
    """Takes letters of any size, one algorithm, and a header of our own."""

    max_ciphertext_length = 2 * MAX_LETTER_BYTES

    def __init__(self, cipher: GCMEncModel | None = None) -> None:
        super().__init__(algorithms=[_ALG, _ENC], strict_check_header=False)
        self._cipher = cipher

    def get_enc(self, name: str) -> Any:
        """The cipher of this one encryption, or the library's own."""
        return self._cipher or super().get_enc(name)


class _WithIv(GCMEncModel):
    """AES-256-GCM with an initialization vector that was chosen before."""

    def __init__(self, iv: bytes) -> None:
        super().__init__(256)
        self._iv = iv

    def generate_iv(self) -> bytes:
        """The one that was chosen."""
        return self._iv


class JweCipher:
    """Seals with the current key and opens with any; keys are 32 bytes, by id.

    The initialization vector follows from key, header and text, so that a letter that is written
    again has the same bytes. Two different ones share none: it is the output of an HMAC.
    """

    def __init__(self, keys: Mapping[str, bytes], current: str) -> None:
        self._keys = dict(keys)
        self._current = current

    def seal(self, plain: bytes, letter_id: str, /) -> bytes:
        """The JWE of *plain*, which names the letter that it belongs to."""
        header = {"alg": _ALG, "enc": _ENC, "kid": self._current, "cty": _CONTENT}
        header["letter"] = letter_id
        key = self._keys[self._current]
        registry = _Registry(_WithIv(_iv(key, header, plain)))
        return encrypt_compact(header, plain, OctKey.import_key(key), registry=registry).encode()

    def open(self, sealed: bytes, letter_id: str, /) -> bytes | Refusal:
        """What was sealed, or why not; raises what this machine lacks."""
        try:
            token = _opened_by(sealed, self._keys)
        except KeyError as error:
            return Refusal(
                f"it is sealed with the key {error.args[0][:100]!r},"
                " which is not among dlq.encryption_keys"
            )
        except (JoseError, ValueError, TypeError, AssertionError, RecursionError) as error:
            if is_machine_fault(error):
                raise
            return Refusal("its sealed body is damaged, or its key is not the one it names")
        if token.protected.get("letter") != letter_id:
            return Refusal("its sealed body was made for another letter")
        return token.plaintext or b""


def _opened_by(sealed: bytes, keys: Mapping[str, bytes]) -> Any:
    """Open *sealed*; raises KeyError with the id of a key that is not there."""

    def find(recipient: Any) -> OctKey:
        return OctKey.import_key(keys[str(recipient.headers().get("kid", ""))])

    return decrypt_compact(sealed, find, registry=_Registry())


def _iv(key: bytes, header: Mapping[str, str], plain: bytes) -> bytes:
    chooser = hmac.digest(key, _IV_PURPOSE, "sha256")
    head = json.dumps(header, sort_keys=True).encode()
    return hmac.digest(chooser, len(head).to_bytes(8) + head + plain, "sha256")[:_IV_BYTES]
