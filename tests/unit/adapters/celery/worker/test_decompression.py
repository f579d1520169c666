"""A few kilobytes that unpack to gigabytes end as an error, not as a worker out of memory."""

from __future__ import annotations

import bz2
import lzma
import struct
import subprocess
import sys
import zlib
from types import SimpleNamespace

import brotli
import pytest
from backports import zstd
from celery.backends.base import compress_payload, decompress_payload
from kombu import compression

from angzarr.adapters.celery.worker.message_limits import bound_decompression

PACKED = {
    "application/x-gzip": zlib.compress,
    "application/x-bz2": bz2.compress,
    "application/x-lzma": lzma.compress,
    "application/zstd": zstd.compress,
    "application/x-brotli": brotli.compress,
}
OWN = "application/x-own"


@pytest.fixture(autouse=True)
def bounded():
    before = dict(compression._decoders), dict(compression._encoders), dict(compression._aliases)
    bound_decompression(2**20)
    yield
    for now, was in zip(
        (compression._decoders, compression._encoders, compression._aliases), before, strict=True
    ):
        now.clear()
        now.update(was)


def test_all_that_kombu_knows_is_looked_at_here():
    assert set(compression.encoders()) == set(PACKED)


@pytest.mark.parametrize("size", [0, 1000, 2**20])
@pytest.mark.parametrize("content_type", PACKED)
def test_what_kombu_packs_is_unpacked(content_type, size):
    packed, told = compression.compress(b"x" * size, content_type)
    assert told == content_type
    assert compression.decompress(packed, content_type) == b"x" * size


@pytest.mark.parametrize("content_type", PACKED)
def test_what_is_too_large_is_refused_before_it_is_all_there(content_type):
    bound_decompression(10_000)
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


@pytest.mark.parametrize("content_type", PACKED)
def test_a_bomb_takes_no_more_memory_than_its_bound(content_type):
    """In a process that could not hold what comes out: 64 MiB of it, with 40 to be had."""
    code = """
import resource, sys
from kombu import compression
from angzarr.adapters.celery.worker.message_limits import bound_decompression
bound_decompression(2**20)
bomb = sys.stdin.buffer.read()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 40 * 2**20,) * 2)
try:
    compression.decompress(bomb, sys.argv[1])
except ValueError as error:
    print(error)
"""
    bomb = PACKED[content_type](bytes(2**26))
    command = [sys.executable, "-c", code, content_type]
    done = subprocess.run(command, input=bomb, capture_output=True, check=True)
    assert b"larger than 1048576 bytes" in done.stdout


@pytest.mark.parametrize(
    ("content_type", "raw"),
    [
        # A window of 2 GiB in a frame of one byte.
        ("application/zstd", struct.pack("<IBB", 0xFD2FB528, 0, 21 << 3) + b"\x09\x00\x00x"),
        # A dictionary of 4 GiB, as the old format says it in five bytes.
        ("application/x-lzma", b"\x5d\xff\xff\xff\xff" + b"\xff" * 8 + bytes(8)),
    ],
    ids=["zstd", "lzma"],
)
def test_room_that_a_few_bytes_ask_for_is_not_given(content_type, raw):
    with pytest.raises(ValueError, match="cannot be decompressed"):
        compression.decompress(raw, content_type)


def test_a_compression_of_a_users_own_is_looked_at_once_it_is_unpacked():
    compression.register(lambda body: body, lambda body: body * 100, OWN, ["own"])
    for _ in range(2):  # a second worker in this process bounds it anew
        bound_decompression(1000)
        assert compression.decompress(b"x" * 10, "own") == b"x" * 1000
        with pytest.raises(ValueError, match="larger than 1000"):
            compression.decompress(b"x" * 11, "own")
    bound_decompression(2000)
    assert compression.decompress(b"x" * 20, OWN) == b"x" * 2000


def test_a_brotli_that_knows_no_limit_is_looked_at_once_it_is_unpacked(monkeypatch):
    class Old:
        def process(self, body):
            raise AssertionError("it would give all at once")

    old = SimpleNamespace(Decompressor=Old, error=brotli.error, decompress=brotli.decompress)
    monkeypatch.setattr(compression, "brotli", old)
    compression.register(brotli.compress, old.decompress, "application/x-brotli", ["brotli"])
    bound_decompression(1000)
    assert compression.decompress(brotli.compress(b"x" * 1000), "brotli") == b"x" * 1000
    with pytest.raises(ValueError, match="larger than 1000"):
        compression.decompress(brotli.compress(b"x" * 1001), "brotli")


@pytest.mark.parametrize("content_type", PACKED)
def test_a_result_that_celery_packed_is_unpacked_up_to_the_same_size(content_type):
    bound_decompression(1000)
    assert decompress_payload(compress_payload(b"x" * 1000, content_type)) == b"x" * 1000
    with pytest.raises(ValueError, match=r"raise message\.most_unpacked"):
        decompress_payload(compress_payload(b"x" * 1001, content_type))
