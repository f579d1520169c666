"""What is sent of a command, what is believed of an answer, and what a failed call means. Pure.

FAILED_PRECONDITION is a conflict, with the current book in the trailing metadata or without it;
ABORTED is refused for good; INVALID_ARGUMENT, or an ErrorInfo with the reason COMMAND_REJECTED
under any code, is a business rejection. Whatever else there is says nothing of the command, and
what is malformed says nothing at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError as ProtobufDecodeError
from google.protobuf.message import Message

from angzarr.aggregates.book import Address, Book, Decision
from angzarr.aggregates.command import Command, MergeStrategy
from angzarr.aggregates.decider import MAX_REASON
from angzarr.aggregates.wire_form import (
    FOREIGN_STATE,
    address_of,
    book_from_wire,
    command_to_wire,
    cover_of,
)
from angzarr.errors import (
    AngzarrError,
    CommandAbortedError,
    CommandRejectedError,
    DecodeError,
    SequenceConflictError,
)
from angzarr.events import headers as names
from angzarr.resilience.backoff import Policy, next_delay
from angzarr.resilience.retry_after import from_grpc_metadata
from angzarr.runtime.text import printable
from angzarr.wire.book_pb2 import EventBook
from angzarr.wire.command_service_pb2 import CallErrorInfo, CallStatus
from angzarr.wire.dead_letter_pb2 import SequenceMismatchDetails

#: Characters of another's address that an error shows.
_SHOWN: Final = 200
#: What metadata carries as it is: all that HTTP/2 takes in a header, but the space and the escape.
_PLAIN: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) != "%")


def command_request(command: Command) -> bytes:
    """*command* as the bytes of a CommandBook; raises UnserializableEvent."""
    return command_to_wire(command).SerializeToString(deterministic=True)


def book_request(address: Address) -> bytes:
    """The bytes of the Cover of *address*; raises UnserializableEvent."""
    return cover_of(address).SerializeToString(deterministic=True)


def command_metadata(command: Command) -> tuple[tuple[str, str], ...]:
    """What a CommandBook has no field for, under our headers' names.

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
    """The book that came with an error, None unless it is *address*'s and all there.

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
    """True if the events follow each other, from the beginning or the snapshot to the end."""
    covered = book.snapshot.sequence if book.snapshot else 0
    first = book.next_sequence - len(book.events)
    numbers = [event.sequence for event in book.events]
    return 0 <= first <= covered <= book.next_sequence and numbers == list(
        range(first, book.next_sequence)
    )


#: The trailing metadata in which a server says more than a code.
DETAILS: Final = "grpc-status-details-bin"
#: The reason of an ErrorInfo by which a server says that a domain rule refused a command.
REJECTED: Final = "COMMAND_REJECTED"

_Wanted = TypeVar("_Wanted", bound=Message)

#: The package of each generation, and its number for MANUAL: the later one put UNSPECIFIED first.
_MANUAL: Final = {
    "angzarr": int(MergeStrategy.MANUAL),
    "io.angzarr.v1": int(MergeStrategy.MANUAL) + 1,
}
_ERROR_INFO: Final = "google.rpc.ErrorInfo"


class ReportedStatus(NamedTuple):
    """What gRPC has of a failed call."""

    code: grpc.StatusCode
    text: str
    metadata: tuple[tuple[str, str | bytes], ...] = ()


def told(error: grpc.RpcError) -> ReportedStatus:
    """What *error*, of either colour, says."""
    call: Any = error
    return ReportedStatus(call.code(), call.details() or "", tuple(call.trailing_metadata() or ()))


def refusal(said: ReportedStatus, address: Address) -> AngzarrError | None:
    """The error that a call for the aggregate at *address* ended with, if it says one."""
    details = list(_details(said))
    text = printable(said.text)[:MAX_REASON]
    if said.code is grpc.StatusCode.INVALID_ARGUMENT or _is_rejection(details):
        return CommandRejectedError(text)
    if said.code is grpc.StatusCode.FAILED_PRECONDITION:
        return SequenceConflictError(text, _book(said, details, address))
    if said.code is grpc.StatusCode.ABORTED:
        return _aborted(text, details)
    return None


def _raw(said: ReportedStatus) -> Iterator[bytes]:
    return (value for key, value in said.metadata if key == DETAILS and isinstance(value, bytes))


def _details(said: ReportedStatus) -> Iterator[AnyMessage]:
    """Yield the details of each Status that has the code of its call; any other is forged."""
    for raw in _raw(said):
        status = _message_in(CallStatus, raw)
        if status is not None and status.code == said.code.value[0]:
            yield from status.details


def _book(said: ReportedStatus, details: Iterable[AnyMessage], address: Address) -> Book | None:
    """The first book of *address*, out of a Status or by itself.

    A Status begins with its code, a number; in a book the same field is the cover, which is no
    number, so that the code of a book that is read as a Status is 0, and that of no error is.
    """
    packed = (found for _, found in _unpacked(details, EventBook))
    bare = (
        found
        for raw in _raw(said)
        if not ((status := _message_in(CallStatus, raw)) and status.code)
        if (found := _message_in(EventBook, raw)) is not None
    )
    books = (attached_book(found, address) for written in (packed, bare) for found in written)
    return next((book for book in books if book is not None), None)


def _aborted(text: str, details: Iterable[AnyMessage]) -> CommandAbortedError:
    package, found = next(_unpacked(details, SequenceMismatchDetails), ("", None))
    if found is None:
        return CommandAbortedError(text)
    return CommandAbortedError(
        text,
        expected=found.expected_sequence,
        actual=found.actual_sequence,
        review=found.merge_strategy == _MANUAL[package],
    )


def _is_rejection(details: Iterable[AnyMessage]) -> bool:
    said = (
        _message_in(CallErrorInfo, one.value) for one in details if _type_of(one) == _ERROR_INFO
    )
    return any(info is not None and info.reason == REJECTED for info in said)


def _unpacked(details: Iterable[AnyMessage], kind: type[_Wanted]) -> Iterator[tuple[str, _Wanted]]:
    """Yield the messages of a *kind* of ours, each with the package of its generation."""
    for one in details:
        package, _, name = _type_of(one).rpartition(".")
        if package in _MANUAL and name == kind.DESCRIPTOR.name:
            found = _message_in(kind, one.value)
            if found is not None:
                yield package, found


def _type_of(packed: AnyMessage) -> str:
    return packed.type_url.rpartition("/")[2]


def _message_in(kind: type[_Wanted], raw: bytes) -> _Wanted | None:
    try:
        return kind.FromString(raw)
    except ProtobufDecodeError:
        return None


@dataclass(slots=True)
class CallAttempts:
    """One call, and the tries it has made so far."""

    policy: Policy
    until: datetime
    tries: int = 0

    def left(self, now: datetime) -> float:
        """The seconds that a try which begins *now* may take."""
        return max((self.until - now).total_seconds(), 0.0)

    def after(self, said: ReportedStatus, now: datetime, chance: float) -> timedelta | None:
        """The pause before the next try; None if what was *said* is final.

        It is never shorter than what the server asked for, and none that outlasts the deadline.
        """
        self.tries += 1
        if said.code is not grpc.StatusCode.UNAVAILABLE:
            return None
        least = from_grpc_metadata(said.metadata)
        pause = next_delay(self.policy, self.tries, chance, least)
        return pause if pause is not None and now + pause < self.until else None
