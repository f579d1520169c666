"""Puts versions for people: reads what they wrote, checks it against its schema, keeps it.

A new version keeps the schema of the version that was put last, unless its author gives another or
says that it has none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from angzarr.clock import Clock
from angzarr.configuration.json_text import read_canonical
from angzarr.configuration.version import (
    ConfigurationAct,
    ConfigurationBody,
    ConfigurationDraft,
    ConfigurationStore,
    ConfigurationVersion,
    PutVersion,
    check_id,
    check_version,
    no_version,
    unknown_version,
)
from angzarr.errors import ConfigurationUnfit


class SchemaChecker(Protocol):
    """Checks values against JSON schemas. It asks no server for what a schema refers to."""

    def check(self, value: Any, schema: Any, /) -> None:
        """Raise ConfigurationUnfit, which names the place, if *value* breaks *schema*.

        The same for what is not a JSON schema, refers to another document, or takes too much time
        or memory to check: it ends in bounded time.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationEditor:
    """Raises ConfigurationUnfit for what cannot be put, and what `ConfigurationStore` raises."""

    store: ConfigurationStore
    #: Opens the checker, which needs another package: only where there is a schema.
    checker: Callable[[], SchemaChecker]
    clock: Clock

    def put(
        self,
        id: str,
        text: str | bytes,
        *,
        author: str,
        schema: str | bytes | None = None,
        no_schema: bool = False,
        version: str | None = None,
        note: str = "",
    ) -> PutVersion:
        """Keep the JSON *text* as a version of *id*, and make it the current one.

        Raises ConfigurationVersionExists if *version* has another body.
        """
        draft = ConfigurationDraft(
            id=check_id(id),
            body=self._body(id, text, schema, no_schema=no_schema, version=version),
            act=ConfigurationAct(author=author, at=self.clock.now(), note=note),
            version=version,
        )
        return self.store.put(draft)

    def choose(self, id: str, version: str, *, author: str, note: str = "") -> bool:
        """Make *version* the current one; False if it is already."""
        act = ConfigurationAct(author=author, at=self.clock.now(), note=note)
        return self.store.choose(check_id(id), check_version(version), act)

    def get(self, id: str, version: str | None = None) -> ConfigurationVersion:
        """The version, or the current one; raises ConfigurationVersionMissing."""
        check_id(id)
        if version is not None:
            found = self.store.get(id, check_version(version))
        else:
            found = self.store.current(id)
        if found is None:
            raise no_version(id) if version is None else unknown_version(id, version)
        return found

    def _body(
        self,
        id: str,
        text: str | bytes,
        schema: str | bytes | None,
        *,
        no_schema: bool,
        version: str | None,
    ) -> ConfigurationBody:
        value = read_canonical(text)
        if schema is not None and no_schema:
            msg = "a version cannot have a schema and have none: give one of the two"
            raise ConfigurationUnfit(msg)
        kept = None if no_schema else self._schema(id, schema, version)
        body = ConfigurationBody(value, kept)
        if kept is not None:
            self.checker().check(body.parsed, body.parsed_schema)
        return body

    def _schema(self, id: str, given: str | bytes | None, version: str | None) -> str | None:
        """The schema as canonical JSON: as *given*, of the version itself, or of the last one."""
        if given is not None:
            return read_canonical(given, "the schema")
        before = self.store.get(id, check_version(version)) if version else None
        if before is None:
            infos = self.store.versions(id)
            before = self.store.get(id, infos[-1].version) if infos else None
        return None if before is None else before.body.schema
