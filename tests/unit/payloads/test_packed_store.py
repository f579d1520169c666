"""What is packed where that pays, what is unpacked within its bound, and what is refused."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from angzarr.adapters.zstd.codec import ZstdPacking
from angzarr.errors import PayloadCorrupt, PayloadElsewhere, PayloadGone
from angzarr.payloads.packed_store import PackedStore, UnpackedTooLarge
from angzarr.payloads.store import PayloadReference, StorageKind, sha256_of
from angzarr.payloads.store_chain import StoreChain
from memory_payloads import MemoryPayloadStore

MOST = 2**20
ZSTD = ZstdPacking()
TEXT = b'{"line": 1, "text": "the same again"}' * 1000


def packed(store=None, *, packing=ZSTD, known=None, most=MOST):
    known = {"zstd": ZSTD} if known is None else known
    return PackedStore(store or MemoryPayloadStore(), most=most, packing=packing, known=known)


def test_a_reference_names_what_lies_in_the_store_and_what_it_unpacks_to():
    inner = MemoryPayloadStore()
    reference = packed(inner).put(TEXT)
    [stored] = inner.payloads.values()
    assert len(stored) < len(TEXT) / 10
    assert (reference.size, reference.sha256) == (len(stored), sha256_of(stored))
    assert (reference.encoding, reference.unpacked_size) == ("zstd", len(TEXT))
    assert (reference.body_size, reference.body_sha256) == (len(TEXT), sha256_of(TEXT))
    assert packed(inner).fetch(reference) == TEXT


def test_what_does_not_get_smaller_lies_there_as_it_is():
    inner, noise = MemoryPayloadStore(), os.urandom(5000)
    reference = packed(inner).put(noise)
    assert (reference.encoding, reference.unpacked_size) == ("", 0)
    assert list(inner.payloads.values()) == [noise]
    assert packed(inner).fetch(reference) == noise


def test_the_same_body_has_one_place_whoever_packs_it():
    assert packed().put(TEXT).sha256 == packed().put(TEXT).sha256


@given(st.binary(max_size=3000), st.integers(0, 200))
def test_any_body_comes_back_as_it_was(body, times):
    store = packed(most=10**6)
    assert store.fetch(store.put(body * times)) == body * times


def test_a_bomb_is_not_unpacked():
    inner = MemoryPayloadStore()
    bomb = zstd.compress(b"\0" * (64 * MOST))
    reference = replace(inner.put(bomb), encoding="zstd", unpacked_size=64 * MOST)
    with pytest.raises(PayloadCorrupt, match=r"larger than 1048576 bytes.*message\.most_unpacked"):
        packed(inner).fetch(reference)
    lying = replace(reference, unpacked_size=1000)
    with pytest.raises(PayloadCorrupt, match="does not unpack to the 1000 bytes"):
        packed(inner).fetch(lying)
    with pytest.raises(UnpackedTooLarge):
        ZSTD.unpack(bomb, MOST)


def test_what_is_packed_to_more_than_a_body_may_have_is_not_even_fetched():
    """Packing makes smaller: what is larger was put there by somebody else."""
    inner = MemoryPayloadStore()
    reference = replace(packed(inner).put(TEXT), size=MOST + 1)
    inner.payloads.clear()
    with pytest.raises(PayloadCorrupt, match="is larger than 1048576 bytes"):
        packed(inner).fetch(reference)


def test_a_body_that_is_too_large_is_not_even_fetched():
    class Untouched(MemoryPayloadStore):
        def fetch(self, reference):
            raise AssertionError(reference)

    reference = PayloadReference(
        kind=StorageKind.S3, uri="memory:x", sha256="0" * 64, size=9, encoding="zstd",
        unpacked_size=MOST + 1,
    )  # fmt: skip
    with pytest.raises(PayloadCorrupt, match="of which no more are read"):
        packed(Untouched()).fetch(reference)


@given(st.binary(max_size=200))
def test_bytes_that_nobody_packed_are_corrupt_and_nothing_else(body):
    inner = MemoryPayloadStore()
    reference = replace(inner.put(body), encoding="zstd", unpacked_size=10)
    with pytest.raises(PayloadCorrupt):
        packed(inner).fetch(reference)


@pytest.mark.parametrize("change", [lambda raw: raw[:-3], lambda raw: raw + b"!", lambda _: b""])
def test_a_frame_that_is_cut_or_goes_on_is_corrupt(change):
    inner = MemoryPayloadStore()
    raw = change(zstd.compress(TEXT))
    told = {"encoding": "zstd", "unpacked_size": len(TEXT), "unpacked_sha256": sha256_of(TEXT)}
    with pytest.raises(PayloadCorrupt):
        packed(inner).fetch(replace(inner.put(raw), **told))


def test_what_unpacks_to_another_body_of_the_same_size_is_corrupt():
    inner = MemoryPayloadStore()
    told = {"encoding": "zstd", "unpacked_size": len(TEXT), "unpacked_sha256": sha256_of(TEXT)}
    other = zstd.compress(TEXT.replace(b"same", b"game"))
    with pytest.raises(PayloadCorrupt, match="does not unpack to"):
        packed(inner).fetch(replace(inner.put(other), **told))


def test_a_packing_that_is_not_installed_is_told_with_the_cure():
    inner = MemoryPayloadStore()
    reference = packed(inner).put(TEXT)
    with pytest.raises(PayloadCorrupt, match=r"pip install 'angzarr-workers\[zstd\]'"):
        packed(inner, known={}).fetch(reference)
    with pytest.raises(PayloadCorrupt, match="update this worker"):
        packed(inner).fetch(replace(reference, encoding="brand-new"))


class Other(MemoryPayloadStore):
    """A store whose places are others."""

    root = "other:/"


def test_each_store_of_a_chain_gives_what_lies_in_it():
    first, second = Other(), MemoryPayloadStore()
    chain = StoreChain([first, second])
    for store in (first, second, chain):
        assert chain.fetch(store.put(TEXT)) == TEXT
    assert chain.put(b"new").uri.startswith("other:")


def test_a_payload_that_is_gone_from_its_store_is_not_looked_for_in_the_next():
    first, second = Other(), MemoryPayloadStore()
    reference = first.put(TEXT)
    first.payloads.clear()
    with pytest.raises(PayloadGone) as caught:
        StoreChain([first, second]).fetch(reference)
    assert not isinstance(caught.value, PayloadElsewhere)
    with pytest.raises(PayloadElsewhere):
        StoreChain([first, second]).fetch(replace(reference, uri="s3://elsewhere/x"))
