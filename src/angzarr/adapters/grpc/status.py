"""Status: what a call's error says of its command. Pure; what is malformed says nothing.

FAILED_PRECONDITION is a conflict, with the current book in the trailing metadata or without it;
ABORTED is refused for good; INVALID_ARGUMENT, or an ErrorInfo with the reason COMMAND_REJECTED
under any code, is a business rejection. Whatever else there is says nothing of the command.

Trying: a call that is made again while its server is away, within one deadline. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, TypeVar

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError, Message

from angzarr.adapters.grpc.exchange import attached_book
from angzarr.aggregates.book import Address, Book
from angzarr.aggregates.command import MergeStrategy
from angzarr.aggregates.deciding import MAX_REASON
from angzarr.errors import (
    AngzarrError,
    CommandAbortedError,
    CommandRejectedError,
    SequenceConflictError,
)
from angzarr.resilience.backoff import Policy, next_delay
from angzarr.resilience.retry_after import from_grpc_metadata
from angzarr.runtime.text import printable
from angzarr.wire.book_pb2 import EventBook
from angzarr.wire.command_service_pb2 import CallErrorInfo, CallStatus
from angzarr.wire.dead_letter_pb2 import SequenceMismatchDetails

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
    """Return what *error*, of either colour, says."""
    call: Any = error
    return ReportedStatus(call.code(), call.details() or "", tuple(call.trailing_metadata() or ()))


def refusal(said: ReportedStatus, address: Address) -> AngzarrError | None:
    """Return the error that a call for the aggregate at *address* ended with, if it says one."""
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
        status = _parsed(CallStatus, raw)
        if status is not None and status.code == said.code.value[0]:
            yield from status.details


def _book(said: ReportedStatus, details: Iterable[AnyMessage], address: Address) -> Book | None:
    """Return the first book of *address*, out of a Status or by itself.

    A Status begins with its code, a number; in a book the same field is the cover, which is no
    number, so that the code of a book that is read as a Status is 0, and that of no error is.
    """
    packed = (found for _, found in _unpacked(details, EventBook))
    bare = (
        found
        for raw in _raw(said)
        if not ((status := _parsed(CallStatus, raw)) and status.code)
        if (found := _parsed(EventBook, raw)) is not None
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
    said = (_parsed(CallErrorInfo, one.value) for one in details if _type_of(one) == _ERROR_INFO)
    return any(info is not None and info.reason == REJECTED for info in said)


def _unpacked(details: Iterable[AnyMessage], kind: type[_Wanted]) -> Iterator[tuple[str, _Wanted]]:
    """Yield the messages of a *kind* of ours, each with the package of its generation."""
    for one in details:
        package, _, name = _type_of(one).rpartition(".")
        if package in _MANUAL and name == kind.DESCRIPTOR.name:
            found = _parsed(kind, one.value)
            if found is not None:
                yield package, found


def _type_of(packed: AnyMessage) -> str:
    return packed.type_url.rpartition("/")[2]


def _parsed(kind: type[_Wanted], raw: bytes) -> _Wanted | None:
    try:
        return kind.FromString(raw)
    except DecodeError:
        return None


@dataclass(slots=True)
class Trying:
    """One call, and the tries it has made so far."""

    policy: Policy
    until: datetime
    tries: int = 0

    def left(self, now: datetime) -> float:
        """Return the seconds that a try which begins *now* may take."""
        return max((self.until - now).total_seconds(), 0.0)

    def after(self, said: ReportedStatus, now: datetime, chance: float) -> timedelta | None:
        """Return the pause before the next try; None if what was *said* is final.

        It is never shorter than what the server asked for, and none that outlasts the deadline.
        """
        self.tries += 1
        if said.code is not grpc.StatusCode.UNAVAILABLE:
            return None
        least = from_grpc_metadata(said.metadata)
        pause = next_delay(self.policy, self.tries, chance, least)
        return pause if pause is not None and now + pause < self.until else None
