"""Effects: a table of a user's own, in the database of the lanes."""

from __future__ import annotations

from sqlalchemy import Connection, Engine, text

from angzarr.adapters.sql.engine.engine import reading


class Effects:
    """What projections wrote, one row an event; *name* is the table's, for a test of its own."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self.name = name
        with engine.begin() as connection:
            deferred = "DEFERRABLE INITIALLY DEFERRED"
            foreign = f"before INTEGER REFERENCES {name} (sequence) {deferred}"
            connection.execute(
                text(f"CREATE TABLE {name} (sequence INTEGER PRIMARY KEY, {foreign})")
            )

    def write(self, connection: Connection, sequence: int, before: int | None = None) -> None:
        row = text(f"INSERT INTO {self.name} VALUES (:sequence, :before)")  # noqa: S608 - ours
        connection.execute(row, {"sequence": sequence, "before": before})

    def empty(self, connection: Connection) -> None:
        connection.execute(text(f"DELETE FROM {self.name}"))  # noqa: S608 - ours

    def written(self) -> list[int]:
        wanted = text(f"SELECT sequence FROM {self.name} ORDER BY sequence")  # noqa: S608 - ours
        with reading(self._engine).connect() as connection:
            return list(connection.execute(wanted).scalars())
