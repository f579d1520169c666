"""Letters that others wrote: a view of what they hold, and the two generations of the wire form."""

from __future__ import annotations

from typing import Any, Final

from angzarr.dead_letters.letter import Reason
from angzarr.events.message import Message
from angzarr.wire.book_pb2 import MergeStrategy
from angzarr.wire.dead_letter_pb2 import AngzarrDeadLetter

#: Full names of the letter: ours, and that of the later generation, which we read.
TYPE_NAME: Final = "angzarr.AngzarrDeadLetter"
LATER_TYPE_NAME: Final = "io.angzarr.v1.AngzarrDeadLetter"

_PROTOBUF: Final = 'application/x-protobuf; messageType="{}"'


def view_of_payload(letter: AngzarrDeadLetter) -> Message:
    """Return the rejected command or events as a Message that names no task and no queue."""
    which = letter.WhichOneof("payload")
    if which is None:
        return Message(body=b"", content_type="", content_encoding="", headers={}, queue="")
    book = getattr(letter, which)
    return Message(
        body=book.SerializeToString(deterministic=True),
        content_type=_PROTOBUF.format(book.DESCRIPTOR.full_name),
        content_encoding="binary",
        headers={},
        queue="",
    )


def facts_of_details(letter: AngzarrDeadLetter) -> dict[str, Any]:
    """Return the fields of DeadLetter that typed details tell, where metadata does not."""
    match letter.WhichOneof("rejection_details"):
        case "event_processing_failed":
            failed = letter.event_processing_failed
            return {
                "reason": Reason.EXHAUSTED,
                "error_message": failed.error,
                "attempts": failed.retry_count,
                "category": "transient" if failed.is_transient else "unknown",
            }
        case "sequence_mismatch":
            mismatch = letter.sequence_mismatch
            expected, actual = mismatch.expected_sequence, mismatch.actual_sequence
            return {
                "reason": Reason.REFUSED,
                "error_type": "SequenceMismatch",
                "error_message": f"expected sequence {expected}, the aggregate is at {actual}",
            }
        case "payload_retrieval_failed":
            lost = letter.payload_retrieval_failed
            return {
                "reason": Reason.UNDELIVERABLE,
                "error_type": "PayloadRetrievalFailed",
                "error_message": lost.error,
            }
        case _:
            return {}


def adopt_later_generation(letter: AngzarrDeadLetter) -> None:
    """Renumber the merge strategies of a letter read as the later generation, in place.

    It put an unspecified value first, so its numbers are one higher; unspecified is read as
    commutative, our zero.
    """
    holders: list[Any] = list(letter.rejected_command.pages)
    if letter.HasField("sequence_mismatch"):
        holders.append(letter.sequence_mismatch)
    for holder in holders:
        holder.merge_strategy = max(holder.merge_strategy - 1, 0)


def adopt_later_generation_json(letter: dict[str, Any]) -> None:
    """Do the same to its JSON form: names are the same, an unspecified or unknown one is dropped.

    What is no object where one belongs is left for the parser to refuse.
    """
    command = letter.get("rejectedCommand", letter.get("rejected_command"))
    pages = command.get("pages") if isinstance(command, dict) else None
    mismatch = letter.get("sequenceMismatch", letter.get("sequence_mismatch"))
    for holder in [*(pages if isinstance(pages, list) else []), mismatch]:
        if isinstance(holder, dict):
            _adopt_strategy(holder)


def _adopt_strategy(holder: dict[str, Any]) -> None:
    for key in ("mergeStrategy", "merge_strategy"):
        value = holder.get(key)
        if isinstance(value, int):
            holder[key] = max(value - 1, 0)
        elif isinstance(value, str) and value not in MergeStrategy.keys():  # noqa: SIM118  an enum
            del holder[key]
