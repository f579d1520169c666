"""Configurations in SQL: each version a row, each version that became current another one.

Who adds a row on PostgreSQL holds one lock: people do so, and two of them wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import Connection, Engine, Row, Select, func, insert, select

from angzarr.adapters.sql.configuration.tables import (
    CONFIG,
    configuration_choices,
    configuration_versions,
)
from angzarr.adapters.sql.engine.schema import SchemaDatabase
from angzarr.adapters.sql.engine.statements import takes_lock
from angzarr.configuration.version import (
    ConfigurationAct,
    ConfigurationBody,
    ConfigurationChoice,
    ConfigurationDraft,
    ConfigurationVersion,
    PutVersion,
    VersionInfo,
    next_version,
    same_version,
    unknown_version,
)
from angzarr.errors import StoreUnavailable

_versions, _choices = configuration_versions.c, configuration_choices.c
#: All of a version but its body, which may be large.
_INFO: Final = (
    _versions.id,
    _versions.version,
    _versions.number,
    _versions.author,
    _versions.at,
    _versions.note,
    _versions.schema.is_not(None).label("has_schema"),
)
_WHOLE: Final = select(*_INFO, _versions.value, _versions.schema)
#: "cfg.put" in ASCII, in PostgreSQL's space of advisory locks; and seconds to wait for it.
_LOCK: Final = int.from_bytes(b"cfg.put", "big")
_PATIENCE: Final = 5.0


class SqlConfigurationStore:
    """Fulfils `ConfigurationStore`; safe to use from threads.

    Its tables are made or, unless *migrate* is False, upgraded before the first use.
    """

    def __init__(
        self, engine: Engine, *, close: Callable[[], None] | None = None, migrate: bool = True
    ) -> None:
        self._database = SchemaDatabase(CONFIG, engine, migrate=migrate, close=close)

    def get(self, id: str, version: str, /) -> ConfigurationVersion | None:
        """The version of that name."""
        return self._database.read(lambda connection: _get(connection, id, version))

    def current(self, id: str, /) -> ConfigurationVersion | None:
        """The version that was put or chosen last."""

        def step(connection: Connection) -> ConfigurationVersion | None:
            version = _current(connection, id)
            return None if version is None else _get(connection, id, version)

        return self._database.read(step)

    def put(self, draft: ConfigurationDraft, /) -> PutVersion:
        """Keep *draft*, and make it current, in one transaction."""

        def step(connection: Connection) -> PutVersion:
            _lock(connection)
            named = draft.version and _get(connection, draft.id, draft.version)
            last = _first(connection, _WHOLE.where(_versions.id == draft.id), _versions.number)
            if (same := same_version(draft, named or None, last)) is not None:
                return PutVersion(same, fresh=False)
            return PutVersion(_add(connection, draft, last), fresh=True)

        return self._database.write(step)

    def choose(self, id: str, version: str, act: ConfigurationAct, /) -> bool:
        """Make *version* the current one."""

        def step(connection: Connection) -> bool:
            _lock(connection)
            if _get(connection, id, version) is None:
                raise unknown_version(id, version)
            if _current(connection, id) == version:
                return False
            _choose(connection, id, version, act, put=False)
            return True

        return self._database.write(step)

    def versions(self, id: str, /) -> list[VersionInfo]:
        """All versions of *id*, without their bodies."""
        found = select(*_INFO).where(_versions.id == id).order_by(_versions.number)
        return [_info(row) for row in self._database.read(lambda c: c.execute(found).all())]

    def choices(self, id: str, /) -> list[ConfigurationChoice]:
        """All versions that became the current one."""
        found = select(configuration_choices).where(_choices.id == id).order_by(_choices.number)
        rows = self._database.read(lambda connection: connection.execute(found).all())
        return [
            ConfigurationChoice(version=row.version, act=_act(row), put=row.put) for row in rows
        ]

    def ids(self) -> list[str]:
        """All configurations, sorted as Python sorts."""
        found = select(_versions.id).distinct()
        return sorted(self._database.read(lambda connection: connection.scalars(found).all()))

    def close(self) -> None:
        """Let the engine go."""
        self._database.close()


def _lock(connection: Connection) -> None:
    if connection.dialect.name == "postgresql" and not takes_lock(connection, _LOCK, _PATIENCE):
        msg = "another process is putting a configuration: try again"
        raise StoreUnavailable(msg)


def _add(
    connection: Connection, draft: ConfigurationDraft, last: ConfigurationVersion | None
) -> ConfigurationVersion:
    """Keep *draft* behind *last*, the version before it."""
    number = 1 if last is None else last.info.number + 1
    version = draft.version or next_version(
        number, lambda name: _get(connection, draft.id, name) is not None
    )
    act, body = draft.act, draft.body
    row = {"id": draft.id, "version": version, "number": number, **body._asdict(), **_said(act)}
    connection.execute(insert(configuration_versions).values(row))
    _choose(connection, draft.id, version, act, put=True)
    info = VersionInfo(
        id=draft.id, version=version, number=number, act=act, has_schema=body.schema is not None
    )
    return ConfigurationVersion(info=info, body=body)


def _choose(
    connection: Connection, id: str, version: str, act: ConfigurationAct, *, put: bool
) -> None:
    counted = select(func.max(_choices.number)).where(_choices.id == id)
    number = (connection.scalar(counted) or 0) + 1
    row = {"id": id, "number": number, "version": version, "put": put, **_said(act)}
    connection.execute(insert(configuration_choices).values(row))


def _said(act: ConfigurationAct) -> dict[str, Any]:
    return {"author": act.author, "at": act.at, "note": act.note}


def _current(connection: Connection, id: str) -> str | None:
    found = select(_choices.version).where(_choices.id == id).order_by(_choices.number.desc())
    version: str | None = connection.scalar(found.limit(1))
    return version


def _get(connection: Connection, id: str, version: str) -> ConfigurationVersion | None:
    wanted = _WHOLE.where(_versions.id == id, _versions.version == version)
    return _first(connection, wanted, _versions.number)


def _first(connection: Connection, found: Select[Any], by: Any) -> ConfigurationVersion | None:
    """The version in the row of *found* that is the last one *by* a column."""
    row = connection.execute(found.order_by(by.desc()).limit(1)).first()
    if row is None:
        return None
    return ConfigurationVersion(info=_info(row), body=ConfigurationBody(row.value, row.schema))


def _info(row: Row[Any]) -> VersionInfo:
    return VersionInfo(
        id=row.id,
        version=row.version,
        number=row.number,
        act=_act(row),
        has_schema=bool(row.has_schema),
    )


def _act(row: Row[Any]) -> ConfigurationAct:
    return ConfigurationAct(author=row.author, at=row.at, note=row.note)
