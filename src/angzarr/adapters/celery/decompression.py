"""Decompression: compressed bodies up to a size (D7).

kombu unpacks a body where its message is received, in the parent, whatever comes out: a few
kilobytes can be gigabytes, which kill the worker before anything is counted, and then the next one.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from kombu import compression

_OPEN: Final[dict[str, tuple[Callable[[], Any], list[str]]]] = {
    "application/x-gzip": (zlib.decompressobj, ["gzip", "zlib"]),
    "application/x-bz2": (bz2.BZ2Decompressor, ["bzip2", "bzip"]),
    "application/x-lzma": (lzma.LZMADecompressor, ["lzma", "xz"]),
}


def bound(most: int) -> None:
    """Let this process unpack no body of more than *most* bytes; what packs them stays."""
    for content_type, (make, aliases) in _OPEN.items():
        try:
            pack, _ = compression.get_encoder(content_type)
        except KeyError:  # this Python has no such module
            continue
        compression.register(pack, partial(unpack, make, most), content_type, aliases)


def unpack(make: Callable[[], Any], most: int, body: bytes) -> bytes:
    """Return what *body* holds; raises ValueError if it is too large, cut, or none at all."""
    opened = make()
    try:
        found: bytes = opened.decompress(body, most + 1)
    except (zlib.error, OSError, lzma.LZMAError) as error:
        msg = f"the body cannot be decompressed: {error}"
        raise ValueError(msg) from error
    if len(found) > most:
        msg = (
            f"the body is larger than {most} bytes when decompressed: if yours may be larger,"
            " raise message.most_unpacked"
        )
        raise ValueError(msg)
    if not opened.eof:
        msg = "the compressed body is cut"
        raise ValueError(msg)
    return found
