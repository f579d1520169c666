"""Tables of before there were revisions, and what is looked at once they were upgraded."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine, MetaData, bindparam, event, text


def run_ddl(engine: Engine, name: str, *, part: str = "") -> None:
    """Run the statements of file *name*, of the dialect, or those of them that hold *part*."""
    ddl = Path(__file__).with_name(f"{name}_{engine.dialect.name}.sql").read_text()
    with engine.begin() as connection:
        for statement in ddl.split(";\n"):
            if statement.strip() and part in statement:
                connection.execute(text(statement))


def indexes(engine: Engine, metadata: MetaData) -> set[str]:
    """Return the definitions of the indexes of its tables, as the database tells them."""
    sqlite = "SELECT sql FROM sqlite_master WHERE type = 'index' AND tbl_name IN :names"
    postgresql = "SELECT indexdef FROM pg_indexes WHERE tablename IN :names"
    asked = text(sqlite if engine.dialect.name == "sqlite" else postgresql)
    names = bindparam("names", list(metadata.tables), expanding=True)
    with engine.connect() as connection:
        found = connection.scalars(asked.bindparams(names))
        return {" ".join(one.split()) for one in found if one}


@contextmanager
def failing_at(beginning: str):
    """Let the first statement that begins so fail."""
    left = [1]

    def fail(_connection, _cursor, statement, *_rest):
        if statement.strip().startswith(beginning) and left:
            left.pop()
            raise OSError("the power went")

    event.listen(Engine, "before_cursor_execute", fail)
    try:
        yield
    finally:
        event.remove(Engine, "before_cursor_execute", fail)


#: How statements begin that change something; others are not worth a cut.
_CHANGES = ("CREATE", "ALTER", "DROP", "INSERT", "UPDATE", "DELETE", "SET")


@contextmanager
def cut_at(number: int):
    """Let all statements from the *number*th change on fail, as if the process had ended there."""
    left = [number]

    def fail(_connection, _cursor, statement, *_rest):
        if statement.strip().startswith(_CHANGES):
            left[0] -= 1
        if left[0] <= 0:
            raise OSError("the power went")

    event.listen(Engine, "before_cursor_execute", fail)
    try:
        yield
    finally:
        event.remove(Engine, "before_cursor_execute", fail)
