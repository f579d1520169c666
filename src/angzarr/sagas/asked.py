"""Asked: who answers a rejection: by which method, and whether it is theirs at all (spec C4)."""

from __future__ import annotations

from typing import Any

from angzarr.aggregates.aggregate import Aggregate, AggregateType
from angzarr.aggregates.book import Book
from angzarr.aggregates.command import id_after
from angzarr.aggregates.declaring import Rejected
from angzarr.errors import UnknownCommand
from angzarr.sagas.context import CompensationContext
from angzarr.sagas.rejection import Rejection
from angzarr.sagas.revoking import revoke_command
from angzarr.sagas.saga import ProcessManager


def said_of(asked: Aggregate[Any], context: CompensationContext) -> object:
    """Return what *asked* says: by the method for the command, or by the older form."""
    command = context.command
    name = asked.methods.rejected.get(Rejected(command.domain or "", command.type))
    if name is not None:
        return getattr(asked, name)(context)
    older = getattr(asked, "handle_revocation", None)
    if older is None:
        return None
    if isinstance(asked, ProcessManager):
        return older(revoke_command(context), asked.state)
    return older(revoke_command(context))


def silence(kind: AggregateType, rejection: Rejection) -> str:
    """Return why *kind* answered nothing to *rejection*. Pure."""
    event = rejection.command.event
    declared = Rejected(event.domain or "", event.type)
    if declared in kind.methods.rejected or hasattr(kind, "handle_revocation"):
        return "the source answered nothing"
    return f"{kind.__qualname__} has no @rejected({declared.domain!r}, {declared.type!r})"


def check_cause(kind: AggregateType, rejection: Rejection, book: Book) -> None:
    """Refuse a rejection of what no event in *book* led to; raises UnknownCommand.

    A process manager may send before it appends. What was sent on names the event of another.
    """
    if issubclass(kind, ProcessManager):
        return
    origin = rejection.origin
    if not book.next_sequence:
        msg = f"there is no {origin.source}, which {origin.saga} names as its source"
        raise UnknownCommand(msg)
    sent_on = rejection.id != id_after(rejection.command.id, "rejected")
    if origin.sequence >= book.next_sequence and not sent_on:
        msg = (
            f"{origin.source} has no event {origin.sequence}, of which {origin.saga} says it set"
            f" it off: it is at {book.next_sequence}"
        )
        raise UnknownCommand(msg)
