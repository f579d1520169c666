from __future__ import annotations

import ast
import os
import stat
from pathlib import Path

import pytest
from sqlalchemy import text

import angzarr
from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.engine.sqlite_files import make_private


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request):
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(folder):
    return {one.name: stat.S_IMODE(one.stat().st_mode) for one in folder.iterdir()}


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("url", ["sqlite:///{}/a.db", "sqlite:///file:{}/a.db?uri=true"])
def test_a_database_and_its_log_are_their_owners_alone(tmp_path, url):
    engine = build_engine(url.format(tmp_path))
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE t (x)"))
        connection.execute(text("INSERT INTO t VALUES (1)"))
        found = modes(tmp_path)
    engine.dispose()
    assert set(found) == {"a.db", "a.db-wal", "a.db-shm"}
    assert set(found.values()) == {0o600}


def test_a_file_that_is_there_keeps_its_permissions(tmp_path):
    file = tmp_path / "a.db"
    file.touch(mode=0o660)
    file.chmod(0o660)
    engine = build_engine(f"sqlite:///{file}")
    engine.connect().close()
    engine.dispose()
    assert modes(tmp_path)["a.db"] == 0o660


@pytest.mark.parametrize("query", ["mode=ro", "cache=shared&mode=rw", "mode=memory&cache=shared"])
def test_what_sqlite_would_not_make_is_not_made(tmp_path, query):
    make_private(f"file:{tmp_path}/a.db?{query}")
    make_private(":memory:")
    make_private("")
    assert modes(tmp_path) == {}


def test_nothing_else_opens_a_sqlite_file_or_makes_its_own_private():
    """Whoever connects by himself makes a file that all can read."""
    package = Path(angzarr.__file__).parent
    strangers = []
    for file in package.rglob("*.py"):
        source = file.read_text()
        if not any(word in source for word in ("sqlite3", "create_engine", "ATTACH")):
            continue
        calls = {ast.unparse(one.func) for one in ast.walk(ast.parse(source))
                 if isinstance(one, ast.Call)}  # fmt: skip
        opens = calls & {"sqlite3.connect", "create_engine"} or "ATTACH ?" in source
        if opens and not calls & {"make_private", "keep_private"}:
            strangers.append(file.relative_to(package).as_posix())
    assert strangers == []
