"""Decompression: compressed bodies up to a size (D7).

kombu unpacks a body where its message is received, in the parent, whatever comes out: a few
kilobytes can be gigabytes, which kill the worker before anything is counted, and then the next one.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from kombu import compression

#: Bytes that a decoder of lzma may take besides the body: what lzma's highest preset needs is 65
#: MiB, and what a few bytes may ask for is 4 GiB.
_LZMA_ROOM: Final = 96 * 2**20
#: Bits of a zstd window that a decoder takes in any case, 8 MiB (RFC 8878, 3.1.1.1.2).
_ZSTD_WINDOW: Final = 23


class Way(NamedTuple):
    """How one compression is undone, a bounded number of bytes at a time."""

    #: Returns what has ``decompress(body, most)`` and `eof`, for bodies of so many bytes.
    make: Callable[[int], Any]
    #: What it raises for bytes that it did not pack.
    error: type[Exception]
    aliases: list[str]


class _Brotli:
    """Brotli's decompressor as those of Python's library are: it gives its output piecemeal."""

    def __init__(self, library: Any, _most: int) -> None:
        self._opened = library.Decompressor()

    @property
    def eof(self) -> bool:
        return bool(self._opened.is_finished())

    def decompress(self, body: bytes, most: int) -> bytes:
        """Return the first bytes of what *body* holds: few more than *most*, or all."""
        found = [self._opened.process(body, output_buffer_limit=most)]
        left = most - len(found[0])
        while left > 0 and found[-1] and not self.eof:
            found.append(self._opened.process(b"", output_buffer_limit=left))
            left -= len(found[-1])
        return b"".join(found)


def bound(most: int) -> None:
    """Let this process unpack no body of more than *most* bytes; what packs them stays.

    What a user registered is a function of the whole body: its result is looked at.
    """
    known = dict(_ways())
    for content_type in compression.encoders():
        pack, _ = compression.get_encoder(content_type)
        if way := known.get(content_type):
            unpacks = partial(unpack, way, most)
            compression.register(pack, unpacks, content_type, way.aliases)
        else:
            decode = compression.get_decoder(content_type)
            if isinstance(decode, partial) and decode.func is _looked_at:
                (decode, _) = decode.args  # bounded before
            compression.register(pack, partial(_looked_at, decode, most), content_type)


def unpack(way: Way, most: int, body: bytes) -> bytes:
    """Return what *body* holds; raises ValueError if it is too large, cut, or none at all."""
    opened = way.make(most)
    try:
        found: bytes = opened.decompress(body, most + 1)
    except (way.error, EOFError) as error:
        msg = f"the body cannot be decompressed: {error}"
        raise ValueError(msg) from error
    _check(found, most)
    if not opened.eof:
        msg = "the compressed body is cut"
        raise ValueError(msg)
    return found


def _looked_at(decode: Callable[[bytes], bytes], most: int, body: bytes) -> bytes:
    found = decode(body)
    _check(found, most)
    return found


def _check(found: bytes, most: int) -> None:
    if len(found) > most:
        msg = (
            f"the body is larger than {most} bytes when decompressed: if yours may be larger,"
            " raise message.most_unpacked"
        )
        raise ValueError(msg)


def _ways() -> Iterator[tuple[str, Way]]:
    """Yield what can be bounded, by content type; zstd and brotli where kombu found them."""
    yield "application/x-gzip", Way(lambda _: zlib.decompressobj(), zlib.error, ["gzip", "zlib"])
    yield "application/x-bz2", Way(lambda _: bz2.BZ2Decompressor(), OSError, ["bzip2", "bzip"])
    yield "application/x-lzma", Way(_lzma, lzma.LZMAError, ["lzma", "xz"])
    if zstd := getattr(compression, "zstd", None):
        make = partial(_zstd, zstd)
        yield "application/zstd", Way(make, zstd.ZstdError, ["zstd", "zstandard"])
    if (brotli := getattr(compression, "brotli", None)) and _is_bounded(brotli):
        make = partial(_Brotli, brotli)
        yield "application/x-brotli", Way(make, brotli.error, ["brotli"])


def _lzma(most: int) -> Any:
    return lzma.LZMADecompressor(memlimit=most + _LZMA_ROOM)


def _zstd(library: Any, most: int) -> Any:
    window = min(max(_ZSTD_WINDOW, most.bit_length()), 31)
    return library.ZstdDecompressor(options={library.DecompressionParameter.window_log_max: window})


def _is_bounded(brotli: Any) -> bool:
    """Tell whether this release of *brotli* knows a limit of its output; 1.2 and later do."""
    try:
        brotli.Decompressor().process(b"", output_buffer_limit=1)
    except TypeError:
        return False
    return True
