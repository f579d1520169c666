"""Exchange: what is sent of a command, and what is believed of an answer. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final
from urllib.parse import quote

from google.protobuf.message import DecodeError as ProtobufDecodeError

from angzarr.aggregates.book import Address, Book, Decision
from angzarr.aggregates.command import Command
from angzarr.aggregates.wire_form import (
    FOREIGN_STATE,
    address_of,
    book_from_wire,
    command_to_wire,
    cover_of,
)
from angzarr.errors import DecodeError
from angzarr.events import headers as names
from angzarr.runtime.text import printable
from angzarr.wire.book_pb2 import EventBook

#: Characters of another's address that an error shows.
_SHOWN: Final = 200
#: What metadata carries as it is: all that HTTP/2 takes in a header, but the space and the escape.
_PLAIN: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) != "%")


def command_request(command: Command) -> bytes:
    """Return *command* as the bytes of a CommandBook; raises UnserializableEvent."""
    return command_to_wire(command).SerializeToString(deterministic=True)


def book_request(address: Address) -> bytes:
    """Return the bytes of the Cover of *address*; raises UnserializableEvent."""
    return cover_of(address).SerializeToString(deterministic=True)


def command_metadata(command: Command) -> tuple[tuple[str, str], ...]:
    """Return what a CommandBook has no field for, under our headers' names.

    Values are percent-encoded, because gRPC carries printable ASCII only. A command with an origin
    has its expected sequence here: in the page its place is taken.
    """
    event, origin = command.event, command.origin
    told = {
        names.EVENT_ID: event.id,
        names.CORRELATION_ID: event.correlation_id,
        names.CAUSATION_ID: event.causation_id,
        names.TENANT_ID: event.tenant_id,
        names.TRACEPARENT: event.traceparent,
        names.DEPTH: str(event.depth) if event.depth else None,
        names.SAGA: origin.saga if origin else None,
        names.SEQUENCE: str(event.sequence) if origin and event.sequence is not None else None,
    }
    return tuple(
        (name.lower(), quote(value, safe=_PLAIN, errors="surrogatepass"))
        for name, value in told.items()
        if value
    )


def decision_of(raw: bytes, command: Command) -> Decision:
    """Read the answer to *command*; raises DecodeError, for a book of another aggregate too."""
    written = _parsed(raw)
    _check_address(written, command.address)
    return Decision(cause=command.id, events=book_from_wire(written).events)


def book_of(raw: bytes, address: Address) -> Book:
    """Read the book at *address*; raises DecodeError if it is another's, or not all of it."""
    return _whole_book(_parsed(raw), address)


def attached_book(written: EventBook, address: Address) -> Book | None:
    """Return the book that came with an error, None unless it is *address*'s and all there.

    What was cut off behind its cover or a page is well-formed: only its number tells, so that an
    empty book is not believed either.
    """
    try:
        return _whole_book(written, address) if written.next_sequence else None
    except DecodeError:
        return None


def _whole_book(written: EventBook, address: Address) -> Book:
    """Read a book that a state can be made of: a snapshot that we cannot read is left out."""
    _check_address(written, address)
    book = book_from_wire(written)
    if book.snapshot is not None and book.snapshot.version == FOREIGN_STATE:
        book = replace(book, snapshot=None)
    if not _is_whole(book):
        msg = f"the book of {address} has holes, or begins behind what can be read here"
        raise DecodeError(msg)
    return book


def _parsed(raw: bytes) -> EventBook:
    try:
        return EventBook.FromString(raw)
    except ProtobufDecodeError as error:
        msg = "the answer is not an EventBook"
        raise DecodeError(msg) from error


def _check_address(written: EventBook, address: Address) -> None:
    found = address_of(written.cover)
    if found != address:
        msg = f"asked for {address}, the answer is of {printable(found)[:_SHOWN]}"
        raise DecodeError(msg)


def _is_whole(book: Book) -> bool:
    """Tell whether the events follow each other, from the beginning or the snapshot to the end."""
    covered = book.snapshot.sequence if book.snapshot else 0
    first = book.next_sequence - len(book.events)
    numbers = [event.sequence for event in book.events]
    return 0 <= first <= covered <= book.next_sequence and numbers == list(
        range(first, book.next_sequence)
    )
