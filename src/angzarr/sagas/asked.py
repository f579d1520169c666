"""Asked: which method of a source answers a rejection (spec C4)."""

from __future__ import annotations

from typing import Any

from angzarr.aggregates.aggregate import Aggregate
from angzarr.aggregates.declaring import Rejected
from angzarr.sagas.context import CompensationContext
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
