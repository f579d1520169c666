"""Text is text, in whatever encoding a database was made."""

from __future__ import annotations

import psycopg
import pytest
from sqlalchemy import make_url, text

from angzarr.adapters.sql.engine.engine import build_engine, in_transaction


@pytest.fixture(params=["SQL_ASCII", "LATIN1"])
def url(request, postgresql_url, unique_name):
    server = postgresql_url.replace("+psycopg", "")
    how = f"TEMPLATE template0 LOCALE 'C' ENCODING '{request.param}'"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{unique_name}" {how}')
    yield make_url(postgresql_url).set(database=unique_name).render_as_string(hide_password=False)
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{unique_name}" WITH (FORCE)')


def test_a_database_of_another_encoding_gives_the_text_that_it_was_given(url):
    engine = build_engine(url)
    asked = text("SELECT CAST(:said AS text)")
    given = in_transaction(engine, lambda one: one.execute(asked, {"said": "Zoë"}).scalar())
    engine.dispose()
    assert given == "Zoë"
