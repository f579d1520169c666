"""Versions of a configuration: immutable JSON values with a name, an author and a number (spec F3).

A configuration is called by an id, such as ``pricing``. What is put gets the next number, or the
name that its author gives it. The current version is the one that was put or chosen last: events
that are not pinned yet are pinned to it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol

from angzarr.errors import (
    ConfigurationUnfit,
    ConfigurationVersionExists,
    ConfigurationVersionMissing,
)
from angzarr.runtime.text import printable

#: Characters of an id, and of the name of a version. They stand in headers, keys and URLs.
LONGEST_ID: Final = 100
LONGEST_VERSION: Final = 64
#: Characters of who did it, and of why.
LONGEST_AUTHOR: Final = 200
LONGEST_NOTE: Final = 1_000

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def is_name(text: str, longest: int = LONGEST_ID) -> bool:
    """True if *text* can be the id of a configuration, or the name of a version."""
    return len(text) <= longest and _NAME.fullmatch(text) is not None


def check_id(id: str) -> str:
    """*id*, or ConfigurationUnfit that says what an id is."""
    return _checked(id, "the id of a configuration", LONGEST_ID)


def check_version(version: str) -> str:
    """*version*, or ConfigurationUnfit that says what the name of a version is."""
    return _checked(version, "the name of a version", LONGEST_VERSION)


def _checked(text: str, what: str, longest: int) -> str:
    if is_name(text, longest):
        return text
    msg = (
        f"{printable(text[:longest])!r} is not {what}: use up to {longest} letters, digits,"
        " dots, dashes and underscores, a letter or digit first"
    )
    raise ConfigurationUnfit(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationAct:
    """Who did something to a configuration, when and why."""

    author: str
    at: datetime
    note: str = ""

    def __post_init__(self) -> None:
        for text, what, longest in (
            (self.author, "author", LONGEST_AUTHOR),
            (self.note, "note", LONGEST_NOTE),
        ):
            if len(text) > longest or printable(text) != text:
                msg = f"the {what} must be one printable line of up to {longest:,} characters"
                raise ConfigurationUnfit(msg)
        if not self.author:
            msg = "nothing says who did it: give an author"
            raise ConfigurationUnfit(msg)


class ConfigurationBody(NamedTuple):
    """A value and the JSON schema that it keeps, both as canonical JSON; None: it has no schema."""

    value: str
    schema: str | None = None

    @property
    def parsed(self) -> Any:
        """The value, made anew each time: a reader may change what it gets."""
        return json.loads(self.value)

    @property
    def parsed_schema(self) -> Any:
        """The schema, made anew each time; None: there is none."""
        return None if self.schema is None else json.loads(self.schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationDraft:
    """What a person wants to put. `version` None: the store gives it the next number."""

    id: str
    body: ConfigurationBody
    act: ConfigurationAct
    version: str | None = None

    def __post_init__(self) -> None:
        check_id(self.id)
        if self.version is not None:
            check_version(self.version)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionInfo:
    """All of a version but its body. `number` counts the versions of one id from 1."""

    id: str
    version: str
    number: int
    act: ConfigurationAct
    has_schema: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationVersion:
    """One immutable version, as a store keeps it."""

    info: VersionInfo
    body: ConfigurationBody = field(repr=False)

    @property
    def version(self) -> str:
        """Its name."""
        return self.info.version

    @property
    def value(self) -> Any:
        """Its JSON value, made anew each time: a reader may change what it gets."""
        return self.body.parsed

    @property
    def schema(self) -> Any:
        """Its JSON schema, made anew each time; None: it has none."""
        return self.body.parsed_schema


class PutVersion(NamedTuple):
    """The answer to a put: the version that has the body now, and whether it is new."""

    version: ConfigurationVersion
    fresh: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationChoice:
    """A version became the current one: it was `put`, or a person chose it afterwards."""

    version: str
    act: ConfigurationAct
    put: bool


class ConfigurationSource(Protocol):
    """What a worker reads. Raises StoreUnavailable if the store does not serve."""

    def get(self, id: str, version: str, /) -> ConfigurationVersion | None:
        """The version; None: there is none of that name, and there may be one later."""

    def current(self, id: str, /) -> ConfigurationVersion | None:
        """The version that was put or chosen last; None: the configuration has none."""

    def close(self) -> None:
        """Let connections go; safe to call twice, and it can still be used."""


class ConfigurationStore(ConfigurationSource, Protocol):
    """What people change. Nothing that was put is ever changed or removed.

    Each verb is atomic, and may be sent twice. Raises StoreUnavailable.
    """

    def put(self, draft: ConfigurationDraft, /) -> PutVersion:
        """Keep *draft* and make it the current version.

        The body of the version of that name, or without a name that of the last version put, is
        kept once: it is answered, and nothing changes. Raises ConfigurationVersionExists if the
        version of that name has another body.
        """

    def choose(self, id: str, version: str, act: ConfigurationAct, /) -> bool:
        """Make *version* the current one; False, having kept nothing, if it is already.

        Raises ConfigurationVersionMissing.
        """

    def versions(self, id: str, /) -> list[VersionInfo]:
        """All versions of *id*, in the order in which they were put."""

    def choices(self, id: str, /) -> list[ConfigurationChoice]:
        """All versions that became the current one, in that order; the last one is current."""

    def ids(self) -> list[str]:
        """All configurations that have a version, sorted."""


def same_version(
    draft: ConfigurationDraft,
    namesake: ConfigurationVersion | None,
    last: ConfigurationVersion | None,
) -> ConfigurationVersion | None:
    """The version that has the body of *draft* already; None: it is to be kept anew.

    *namesake* is the version of the same name, *last* the one that was put last. Raises
    ConfigurationVersionExists.
    """
    if draft.version is None:
        return last if last is not None and last.body == draft.body else None
    if namesake is None:
        return None
    if namesake.body != draft.body:
        raise version_exists(draft.id, draft.version)
    return namesake


def next_version(number: int, taken: Callable[[str], bool]) -> str:
    """The name of the version of this *number*: the number, or the first free one above."""
    while taken(str(number)):
        number += 1
    return str(number)


def version_exists(id: str, version: str) -> ConfigurationVersionExists:
    """The error of a put that would change a version."""
    return ConfigurationVersionExists(
        f"version {version} of {id} has another value or schema, and versions never change: put"
        " it under another name, or without one"
    )


def version_missing(id: str, version: str) -> ConfigurationVersionMissing:
    """The error of a version that is not there; either text may come from a queue."""
    shown = printable(id[:LONGEST_ID]), printable(version[:LONGEST_VERSION])
    return ConfigurationVersionMissing(
        f"version {shown[1]!r} of configuration {shown[0]!r} is not in the store: put it back under"
        " that name, or replay the event with the newest version"
    )


def unknown_version(id: str, version: str) -> ConfigurationVersionMissing:
    """The error of a version that a person named and that is not there."""
    shown = printable(id[:LONGEST_ID]), printable(version[:LONGEST_VERSION])
    return ConfigurationVersionMissing(
        f"configuration {shown[0]!r} has no version {shown[1]!r}:"
        f" `angzarr config versions {shown[0]}` lists those it has"
    )


def no_version(id: str) -> ConfigurationVersionMissing:
    """The error of a configuration that has no version; the text may come from a queue."""
    shown = printable(id[:LONGEST_ID])
    return ConfigurationVersionMissing(
        f"configuration {shown!r} has no version: put one with"
        f" `angzarr config put {shown} <file>`, or correct the name"
    )
