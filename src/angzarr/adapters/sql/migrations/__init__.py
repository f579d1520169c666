"""Revisions, run by Alembic: a folder a schema. One never changes once it was released."""
