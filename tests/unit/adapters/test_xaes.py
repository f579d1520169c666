"""XAES-256-GCM: the test vectors of its specification, round trips, and refusals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.adapters.cryptography.xaes import NONCE_BYTES, XaesCipher
from angzarr.payloads.body_sealer import NotOpened

KEY, CONTEXT = b"k" * 32, b"what it belongs to"
NONCE = b"ABCDEFGHIJKLMNOPQRSTUVWX"


@pytest.mark.parametrize(
    ("key", "context", "sealed"),
    [
        (b"\x01" * 32, b"", "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"),
        (
            b"\x03" * 32,
            b"c2sp.org/XAES-256-GCM",
            "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d",
        ),
    ],
)
def test_it_is_the_cipher_of_the_specification(key, context, sealed):
    cipher = XaesCipher(lambda _size: NONCE)
    assert cipher.encrypt(key, b"XAES-256-GCM", context) == NONCE + bytes.fromhex(sealed)


@given(st.binary(max_size=300), st.binary(max_size=30))
def test_whatever_is_encrypted_is_decrypted(plain, context):
    cipher = XaesCipher()
    sealed = cipher.encrypt(KEY, plain, context)
    assert cipher.decrypt(KEY, memoryview(sealed), context) == plain
    assert len(sealed) == len(plain) + cipher.overhead


@given(st.data())
def test_any_flipped_bit_is_refused(data):
    sealed = bytearray(XaesCipher().encrypt(KEY, b"a body of some length", CONTEXT))
    sealed[data.draw(st.integers(0, len(sealed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(NotOpened):
        XaesCipher().decrypt(KEY, memoryview(bytes(sealed)), CONTEXT)


def test_another_key_another_context_and_what_is_cut_are_refused():
    cipher = XaesCipher()
    sealed = cipher.encrypt(KEY, b"", CONTEXT)
    for key, given_, context in (
        (b"j" * 32, sealed, CONTEXT),
        (KEY, sealed, b"another"),
        (KEY, sealed[:-1], CONTEXT),
        (KEY, sealed[:NONCE_BYTES], CONTEXT),
        (KEY, b"", CONTEXT),
    ):
        with pytest.raises(NotOpened):
            cipher.decrypt(key, memoryview(given_), context)


def test_the_same_text_is_never_encrypted_to_the_same_bytes():
    cipher = XaesCipher()
    assert len({cipher.encrypt(KEY, b"yes", CONTEXT) for _ in range(100)}) == 100
