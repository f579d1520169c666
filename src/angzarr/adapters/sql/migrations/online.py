"""Online: changes of indexes while workers go on filing."""

from __future__ import annotations

from typing import Any, Protocol

from alembic import op
from sqlalchemy.exc import DBAPIError, PendingRollbackError


class Change(Protocol):
    """Makes and drops indexes."""

    def __call__(self, concurrently: dict[str, Any], /) -> None:
        """Do so with the options *concurrently* for each."""


def change_indexes(change: Change) -> None:
    """Call *change*; on PostgreSQL without locking others out.

    It makes the new ones first, so that no question waits. One that was interrupted leaves a husk
    that no question uses and every write pays for: it drops what it makes before.
    """
    if op.get_bind().dialect.name != "postgresql":
        change({})
        return
    try:
        with op.get_context().autocommit_block():
            _change_without_locks(change)
    except PendingRollbackError as error:  # Alembic commits on a connection that is gone
        if isinstance(cut := error.__context__, DBAPIError):
            raise cut from cut.__cause__
        raise


def _change_without_locks(change: Change) -> None:
    op.execute("SET lock_timeout = 0")  # it waits for transactions, and holds up none of them
    try:
        change({"postgresql_concurrently": True})
    finally:  # the next revision may hold up others, and must not wait for long
        if not op.get_bind().invalidated:
            op.execute("RESET lock_timeout")
