"""How findings of the doctor name a database: by what a person can open, and no secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from angzarr.adapters.sql.engine.doctor import name_of


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("sqlite:///claims.db", f"SQLite at {Path.cwd()}/claims.db"),
        ("sqlite:///data/claims.db", f"SQLite at {Path.cwd()}/data/claims.db"),
        ("sqlite:////var/lib/claims.db", "SQLite at /var/lib/claims.db"),
        ("sqlite+pysqlite:////var/lib/claims.db", "SQLite at /var/lib/claims.db"),
        ("sqlite:////var/lib/claims.db?timeout=5", "SQLite at /var/lib/claims.db"),
        ("sqlite:///file:claims.db?uri=true", "SQLite at file:claims.db"),
        ("postgresql+psycopg://jo:hunter2@db:5432/shop", "PostgreSQL at jo:***@db:5432/shop"),
        ("postgresql+psycopg://db/shop?password=hunter2", "PostgreSQL at db/shop"),
    ],
)
def test_a_database_is_named_by_its_place(url, name):
    assert name_of(url) == name
