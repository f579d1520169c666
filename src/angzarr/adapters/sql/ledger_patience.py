"""Pages that take longer than a statement may: what to ask for in their place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from angzarr.errors import LedgerUnavailable

#: SQLSTATE of a statement that was ended for its time.
_CANCELED: Final = "57014"


@contextmanager
def within_time() -> Iterator[None]:
    """Say of a page that took too long how to narrow it; it is LedgerUnavailable all the same.

    The bound is PostgreSQL's; SQLite goes on until it is through.
    """
    try:
        yield
    except LedgerUnavailable as error:
        if not _is_canceled(error):
            raise
        msg = (
            "the page took longer than a statement may, as nothing but a look at all entries"
            " answers what was asked: name a span of time (since, until), a handler, a domain, an"
            " event type, a group or a tenant besides"
        )
        raise LedgerUnavailable(msg) from error


def _is_canceled(error: LedgerUnavailable) -> bool:
    said: Any = getattr(error.__cause__, "orig", None)
    return getattr(said, "sqlstate", None) == _CANCELED
