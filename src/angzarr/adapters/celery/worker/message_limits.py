"""Limits of each received message: its fields, its JSON, and its size once decompressed (D7).

Bytes bound nothing: three kilobytes can become gigabytes when unpacked or parsed. kombu does that
in the parent before any start is counted, and each worker that takes the message would die.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from kombu import compression

from angzarr.adapters.celery.envelope import Envelope
from angzarr.adapters.celery.worker.json_bodies import read_ahead
from angzarr.dead_letters.text import to_json_text
from angzarr.errors import DecodeError
from angzarr.events.received import CHECKED, DamagedEnvelope, check_received
from angzarr.runtime.json_bounds import Bounds, TooMuch, check_json

#: The attribute of a kombu message that says that it was looked at.
_SEEN: Final = "angzarr_seen"
_JSON: Final = "application/json"
#: The codecs of a body that is not JSON. kombu takes any of Python's codecs, and of these
#: some unpack (bz2, zip) and some take a time that grows with the square of a text (idna).
_TEXT_ENCODINGS: Final = frozenset({"", "utf-8", "utf8", "us-ascii", "ascii", "binary", "latin-1"})


def take_in(message: Any, bounds: Bounds) -> None:
    """Look at *message*, a kombu message, once; its properties have their types from then on.

    Raises DamagedEnvelope for what no broker says of a message, DecodeError for a body that would
    be more than *bounds* once it is parsed.
    """
    if getattr(message, _SEEN, False):
        return
    if getattr(message, CHECKED, False):  # all but its body, which was packed then
        _check_type_of_body(message)
    else:
        check_fields(message)
    _check_body(message, bounds)
    read_ahead(message)
    setattr(message, _SEEN, True)


def read_body(message: Any, bounds: Bounds) -> None:
    """Take *message* in and read its body, which it keeps; raises whatever is wrong with either."""
    take_in(message, bounds)
    if message.content_type == _JSON:
        message.decode()


def check_fields(message: Any) -> None:
    """Raise DamagedEnvelope unless all that is said of *message* has the type that it must have."""
    for name in ("properties", "delivery_info"):
        if not isinstance(getattr(message, name), dict):
            msg = f"its {name} are not a mapping: {getattr(message, name)!r:.100}"
            raise DamagedEnvelope(msg)
    _check_type_of_body(message)
    check_received(
        message.headers,
        message.properties,
        message.delivery_info,
        {"content type": message.content_type, "content encoding": message.content_encoding},
    )


def _check_type_of_body(message: Any) -> None:
    if message.body is None:  # as a body of no bytes is
        message.body = b""
    if not isinstance(message.body, bytes | bytearray | memoryview | str):
        msg = f"its body must be a string; got {type(message.body).__name__} {message.body!r:.100}"
        raise DamagedEnvelope(msg)


def as_a_whole(message: Any, envelope: Envelope) -> Envelope:
    """The *envelope* of a damaged message: its body is all that arrived."""
    key = envelope.delivery_info.get("routing_key")
    return envelope._replace(
        body=_all_of(message),
        content_type="application/octet-stream",
        content_encoding="binary",
        headers={},
        properties={},
        delivery_info={"routing_key": key} if isinstance(key, str) else {},
    )


def _all_of(message: Any) -> bytes:
    """All that arrived of *message*: its envelope where it has one."""
    came = message.delivery_info if isinstance(message.delivery_info, dict) else {}
    sqs = came.get("sqs_message")
    if isinstance(sqs, dict) and isinstance(sqs.get("Body"), str):
        return str(sqs["Body"]).encode("utf-8", "surrogatepass")
    envelope = getattr(message, "_raw", None)  # kombu's transports that have envelopes keep them
    if envelope is not None:
        return to_json_text(envelope).encode()
    body = message.body
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    text = body if isinstance(body, str) else to_json_text(body)
    return text.encode("utf-8", "surrogateescape")


def _check_body(message: Any, bounds: Bounds) -> None:
    body = message.body
    if not body:
        return
    if message.content_type != _JSON:
        encoding = (message.content_encoding or "").lower()
        if encoding not in _TEXT_ENCODINGS:
            msg = f"its content encoding {encoding!r:.50} is not one of text"
            raise DecodeError(msg)
        return
    try:
        check_json(body if isinstance(body, bytes | str) else bytes(body), bounds)
    except TooMuch as error:
        limit = bounds.nodes if error.what == "values" else bounds.depth
        msg = (
            f"its body has more than {limit} {error.what}: if yours may have as many, raise"
            f" {_SETTINGS.get(error.what, 'message')}"
        )
        raise DecodeError(msg) from error


_SETTINGS: Final = {"values": "message.most_values", "levels": "message.most_levels"}

#: Bytes that a decoder of lzma may take besides the body: what lzma's highest preset needs is 65
#: MiB, and what a few bytes may ask for is 4 GiB.
_LZMA_ROOM: Final = 96 * 2**20
#: Bits of a zstd window that a decoder takes in any case, 8 MiB (RFC 8878, 3.1.1.1.2).
_ZSTD_WINDOW: Final = 23


class Decompression(NamedTuple):
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
        """The first bytes that *body* unpacks to: few more than *most*, or all."""
        found = [self._opened.process(body, output_buffer_limit=most)]
        left = most - len(found[0])
        while left > 0 and found[-1] and not self.eof:
            found.append(self._opened.process(b"", output_buffer_limit=left))
            left -= len(found[-1])
        return b"".join(found)


def bound_decompression(most: int) -> None:
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


def unpack(way: Decompression, most: int, body: bytes) -> bytes:
    """The content of *body*; raises ValueError if it is too large, cut, or not compressed."""
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


def _ways() -> Iterator[tuple[str, Decompression]]:
    """Yield what can be bounded, by content type; zstd and brotli where kombu found them."""
    yield (
        "application/x-gzip",
        Decompression(lambda _: zlib.decompressobj(), zlib.error, ["gzip", "zlib"]),
    )
    yield (
        "application/x-bz2",
        Decompression(lambda _: bz2.BZ2Decompressor(), OSError, ["bzip2", "bzip"]),
    )
    yield "application/x-lzma", Decompression(_lzma, lzma.LZMAError, ["lzma", "xz"])
    if zstd := getattr(compression, "zstd", None):
        make = partial(_zstd, zstd)
        yield "application/zstd", Decompression(make, zstd.ZstdError, ["zstd", "zstandard"])
    if (brotli := getattr(compression, "brotli", None)) and _is_bounded(brotli):
        make = partial(_Brotli, brotli)
        yield "application/x-brotli", Decompression(make, brotli.error, ["brotli"])


def _lzma(most: int) -> Any:
    return lzma.LZMADecompressor(memlimit=most + _LZMA_ROOM)


def _zstd(library: Any, most: int) -> Any:
    window = min(max(_ZSTD_WINDOW, most.bit_length()), 31)
    return library.ZstdDecompressor(options={library.DecompressionParameter.window_log_max: window})


def _is_bounded(brotli: Any) -> bool:
    """True if this release of *brotli* knows a limit of its output; 1.2 and later do."""
    try:
        brotli.Decompressor().process(b"", output_buffer_limit=1)
    except TypeError:
        return False
    return True
