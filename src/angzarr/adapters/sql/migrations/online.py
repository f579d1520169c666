"""Online: changes of indexes while workers go on filing."""

from __future__ import annotations

from typing import Any, Protocol

from alembic import op


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
    with op.get_context().autocommit_block():
        op.execute("SET lock_timeout = 0")  # it waits for transactions, and holds up none of them
        try:
            change({"postgresql_concurrently": True})
        finally:  # the next revision may hold up others, and must not wait for long
            op.execute("RESET lock_timeout")
