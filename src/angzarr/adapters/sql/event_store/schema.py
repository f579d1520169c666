"""The schema of event books and of the rejected commands beside them."""

from __future__ import annotations

from typing import Final

from angzarr.adapters.sql.engine.schema import Schema
from angzarr.adapters.sql.event_store.rejection_tables import rejected_commands
from angzarr.adapters.sql.event_store.tables import HEAD, METADATA, event_books

#: Before there were revisions each of its two parts was made by whoever needed it first.
BOOKS: Final = Schema(
    name="books",
    called="the database of event books",
    metadata=METADATA,
    head=HEAD,
    first=(event_books, rejected_commands),
    cure="angzarr database upgrade books",
    setting="books_migrate",
)
