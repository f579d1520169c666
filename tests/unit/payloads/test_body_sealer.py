"""Sealed bodies: what opens them, what is refused, and what a message shows of one."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.adapters.cryptography.xaes import XaesCipher
from angzarr.adapters.zstd.codec import ZstdPacking
from angzarr.errors import DecodeError, PayloadCorrupt, PayloadKeyMissing
from angzarr.payloads.body_sealer import OVERHEAD, BodyKeys, BodySealer, seal_line
from angzarr.payloads.claim_check import HEADER, ClaimCheck, check_in, inline_reference, write_check
from angzarr.payloads.packed_store import PackedStore
from angzarr.payloads.sealed_message import (
    ARGUMENT,
    STORED_BODY,
    find_sealed,
    is_sealed_body,
    sealed_body,
    sealed_in,
    sealed_size,
)
from angzarr.payloads.store import SEALED_ENCODING
from memory_payloads import MemoryPayloadStore

ZSTD = ZstdPacking()
RING = BodyKeys(
    keys={"old": b"o" * 32, "new": b"n" * 32, "acme": b"a" * 32},
    current="new",
    tenants={"acme": "acme"},
)
SEALER = BodySealer(keys=RING, cipher=XaesCipher(), packing=ZSTD, known={"zstd": ZSTD})
BODY = json.dumps([[{"card": "4111"}], {}, {}]).encode()


@given(
    st.binary(max_size=400), st.text(max_size=60), st.booleans(), st.sampled_from(list(RING.keys))
)
def test_any_body_comes_back_as_it_was_for_its_event(body, event_id, packs, key):
    sealed = SEALER.seal(body, event_id, key, packs=packs)
    assert SEALER.open(sealed, event_id, len(body), key) == body
    assert len(sealed) <= len(body) + OVERHEAD
    assert seal_line(sealed).key == key


@given(st.data(), st.booleans())
def test_any_flipped_bit_is_refused(data, packs):
    sealed = bytearray(SEALER.seal(BODY * 3, "e1", "new", packs=packs))
    sealed[data.draw(st.integers(0, len(sealed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises((PayloadCorrupt, PayloadKeyMissing)):
        SEALER.open(bytes(sealed), "e1", len(BODY * 3), "new")


@given(st.text(max_size=20), st.text(max_size=20))
def test_the_body_of_another_event_is_refused(mine, theirs):
    sealed = SEALER.seal(BODY, mine, "new")
    if mine == theirs:
        return
    with pytest.raises(PayloadCorrupt, match="belongs to another event"):
        SEALER.open(sealed, theirs, len(BODY), "new")


def test_a_body_is_packed_before_it_is_sealed_and_unpacked_within_its_size():
    body = b"the same again " * 1000
    sealed = SEALER.seal(body, "e1", "new", packs=True)
    assert len(sealed) < 500
    assert seal_line(sealed).packing == "zstd"
    with pytest.raises(PayloadCorrupt, match="unpacks to more than 100 bytes"):
        SEALER.open(sealed, "e1", 100, "new")
    with pytest.raises(PayloadCorrupt, match="does not have the 15001 bytes"):
        SEALER.open(sealed, "e1", 15_001, "new")
    with pytest.raises(PayloadCorrupt, match="packed by 'zstd', which is not installed here"):
        replace(SEALER, known={}).open(sealed, "e1", len(body), "new")
    assert seal_line(SEALER.seal(BODY[:10], "e1", "new", packs=True)).packing == ""


def test_keys_rotate_and_a_key_that_is_gone_is_named():
    sealed = SEALER.seal(BODY, "e1", "old")
    assert SEALER.open(sealed, "e1", len(BODY), "old") == BODY
    later = replace(SEALER, keys=BodyKeys(keys={"new": b"n" * 32}, current="new"))
    with pytest.raises(
        PayloadKeyMissing, match=r"key .old., which is not among payloads\.encryption"
    ) as error:
        later.open(sealed, "e1", len(BODY), "old")
    assert "oooo" not in str(error.value)
    other = replace(SEALER, keys=BodyKeys(keys={"old": b"p" * 32}, current="old"))
    with pytest.raises(PayloadCorrupt, match="or the key here is another one of that name"):
        other.open(sealed, "e1", len(BODY), "old")


def test_a_body_that_another_key_sealed_than_its_message_names_is_refused():
    """What is made of it would be sealed by the key that an attacker chose."""
    sealed = SEALER.seal(BODY, "e1", "old")
    for named in ("new", "unknown"):
        told = f"key 'old', and its message names the key '{named}'"
        with pytest.raises(PayloadCorrupt, match=told):
            SEALER.open(sealed, "e1", len(BODY), named)


def test_a_tenant_has_its_key_and_everyone_else_the_one_in_use():
    assert RING.of_tenant("acme") == "acme"
    assert [RING.of_tenant(one) for one in ("other", None, 7, ["acme"])] == ["new"] * 4
    assert "oooo" not in repr((RING, SEALER))


def test_what_is_made_of_a_body_has_the_key_of_its_tenant_or_the_one_that_it_came_with():
    assert RING.of_copy("old", "acme") == "acme"
    assert RING.of_copy("old", None, "acme") == "acme", "a follower has no tenant of its own"
    assert RING.of_copy("acme", "other", None) == "acme", "a tenant of whom only others know"
    assert RING.of_copy("old") == "old"
    assert RING.of_copy("gone", ["acme"]) == "new", "a key that is not here seals nothing"


def test_a_digest_proves_no_guess_without_the_key_and_joins_no_two_events():
    mine = SEALER.digest("new", "e1", "d")
    assert mine == SEALER.digest("new", "e1", "d")
    others = {
        SEALER.digest("old", "e1", "d"),
        SEALER.digest("new", "e2", "d"),
        SEALER.digest("new", "e1", "c"),
    }
    assert len(others | {mine}) == 4


@pytest.mark.parametrize("packing", [None, ZSTD])
def test_a_store_keeps_a_sealed_body_as_it_is(packing):
    inner = MemoryPayloadStore()
    store = PackedStore(inner, most=10, packing=packing, known={})
    sealed = SEALER.seal(BODY, "e1", "new")
    reference = replace(store.put(sealed), encoding=SEALED_ENCODING, unpacked_size=len(BODY))
    assert store.fetch(reference) == sealed == inner.fetch(reference)
    assert reference.body_sha256 == reference.sha256, "that of the body would prove a guess"


def test_a_message_has_its_sealed_body_in_one_argument():
    sealed = SEALER.seal(BODY, "e1", "new")
    body = sealed_body(sealed)
    args, kwargs, embed = json.loads(body)
    assert (args, list(kwargs), any(embed.values())) == ([], [ARGUMENT], False)
    assert sealed_in(kwargs) == find_sealed(body) == sealed
    assert len(body) <= sealed_size(len(BODY))
    assert is_sealed_body(body)
    assert is_sealed_body(STORED_BODY)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        BODY,
        json.dumps([[], {ARGUMENT: "plain"}, {}]).encode(),
        json.dumps([[], {ARGUMENT: "cGxhaW4="}, None]).encode(),
        sealed_body(b"plain"),
        sealed_body(SEALER.seal(BODY, "e", "new")).replace(b"[[]", b"[[1]"),
        sealed_body(SEALER.seal(BODY, "e", "new")).replace(b"{", b'{"x": 1, ', 1),
        sealed_body(SEALER.seal(BODY, "e", "new")).replace(b'"chain": null', b'"chain": 1'),
    ],
)
def test_what_only_claims_to_be_sealed_is_not(body):
    assert not is_sealed_body(body)


@pytest.mark.parametrize("kwargs", [{}, {ARGUMENT: 7}, {ARGUMENT: "no base64!"}, {ARGUMENT: "é"}])
def test_an_argument_that_is_no_sealed_body_is_an_error_in_a_sentence(kwargs):
    with pytest.raises(DecodeError, match="not the encrypted body that its header announces"):
        sealed_in(kwargs)


@given(st.integers(0, 2**40), st.booleans())
def test_a_check_of_a_body_in_its_message_is_read_as_it_was_written(size, follows):
    check = ClaimCheck(
        reference=inline_reference(size, size + 1),
        digest="a" * 64,
        follows=follows,
        key="k.1",
    )
    assert check_in({HEADER: write_check(check)}) == check
    assert check.is_inline
    assert check.fingerprint == f"k.1:{'a' * 64}"


def test_a_check_of_a_stored_sealed_body_tells_no_hash_of_the_body():
    place = MemoryPayloadStore().put(b"sealed")
    reference = replace(place, encoding=SEALED_ENCODING, unpacked_size=4, stored_at=None)
    check = ClaimCheck(reference=reference, digest="a" * 64, key="k1")
    text = write_check(check)
    assert "unpacked_sha256" not in text
    assert check_in({HEADER: text}) == check
    assert not check.is_inline


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"key": None}, "it names no key"),
        ({"key": "a key"}, "it names no key"),
        ({"key": "k" * 65}, "it names no key"),
        ({"digest": None}, "its hashes are not SHA-256"),
        ({"uri": "memory:x"}, "its hashes are not SHA-256"),
        ({"uri": 7}, "it names no place"),
        ({"unpacked_size": -1}, "its size is not a number of bytes"),
        ({"encoding": "other"}, "it names no place"),
    ],
)
def test_a_hostile_check_is_refused(change, why):
    said = {
        "size": 9,
        "unpacked_size": 9,
        "digest": "a" * 64,
        "encoding": SEALED_ENCODING,
        "key": "k",
    }
    with pytest.raises(DecodeError, match=why):
        check_in({HEADER: json.dumps(said | change)})
