"""The ledger's revisions, run by Alembic. A revision never changes once it was released."""
