"""Zstandard (RFC 8878) for stored payloads: one frame, unpacked within a bound."""

from __future__ import annotations

from typing import Any, Final

from backports import zstd

from angzarr.payloads.packed_store import UnpackedTooLarge

#: A middle one: a twentieth of a second for a MiB of JSON, and a fifth of its size.
_LEVEL: Final = 3
#: log2 of the largest window that any level up to 19 asks of a reader, in bytes.
_WINDOW: Final = 27


class ZstdPacking:
    """Packs by Zstandard; the same bytes give the same, in one release of the library."""

    name = "zstd"

    def pack(self, payload: bytes, /) -> bytes:
        """*payload* as one frame, with its size and a checksum."""
        options: dict[int, int] = {
            zstd.CompressionParameter.compression_level: _LEVEL,
            zstd.CompressionParameter.checksum_flag: 1,
        }
        return zstd.compress(payload, options=options)

    def unpack(self, packed: bytes, most: int, /) -> bytes:
        """What was packed; reads no further than *most* bytes.

        Raises UnpackedTooLarge, and ValueError for what is not one whole frame.
        """
        opened: Any = zstd.ZstdDecompressor(
            options={zstd.DecompressionParameter.window_log_max: _WINDOW}
        )
        try:
            found: bytes = opened.decompress(packed, most + 1)
        except (zstd.ZstdError, EOFError) as error:
            raise ValueError(str(error)) from error
        if len(found) > most:
            raise UnpackedTooLarge(most)
        if not opened.eof or opened.unused_data:
            msg = "it is cut, or something stands behind it"
            raise ValueError(msg)
        return found
