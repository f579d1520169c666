"""A few kilobytes that unpack to gigabytes end as an error, not as a worker out of memory."""

from __future__ import annotations

import bz2
import lzma
import zlib

import pytest
from kombu import compression

from angzarr.adapters.celery import decompression

PACKED = {
    "application/x-gzip": zlib.compress,
    "application/x-bz2": bz2.compress,
    "application/x-lzma": lzma.compress,
}


@pytest.fixture(autouse=True)
def bounded():
    before = dict(compression._decoders)
    decompression.bound(2**20)
    yield
    compression._decoders.update(before)


@pytest.mark.parametrize("content_type", PACKED)
def test_what_kombu_packs_is_unpacked(content_type):
    packed, told = compression.compress(b"x" * 1000, content_type)
    assert told == content_type
    assert compression.decompress(packed, content_type) == b"x" * 1000


@pytest.mark.parametrize("content_type", PACKED)
def test_what_is_too_large_is_refused_before_it_is_all_there(content_type):
    decompression.bound(10_000)
    packed = PACKED[content_type](b"x" * 10_001)
    with pytest.raises(ValueError, match="larger than 10000"):
        compression.decompress(packed, content_type)
    exactly = PACKED[content_type](b"x" * 10_000)
    assert len(compression.decompress(exactly, content_type)) == 10_000


@pytest.mark.parametrize("content_type", PACKED)
def test_what_is_cut_or_none_at_all_is_refused(content_type):
    packed = PACKED[content_type](b"some text")
    for wrong in (packed[:-4], b"no such thing", b""):
        with pytest.raises((ValueError, EOFError)):
            compression.decompress(wrong, content_type)
