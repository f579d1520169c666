"""The settings of the dashboard: who may come in, by which names, how often."""

from __future__ import annotations

import hashlib
import ipaddress
import re
from enum import StrEnum
from typing import Final

from pydantic import Field, SecretStr, field_validator

from angzarr.settings.base import Section

#: Shorter ones can be guessed.
SHORTEST_SESSION_KEY: Final = 32
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}\Z")
_SHA256: Final = re.compile(r"[0-9a-f]{64}\Z")
#: Hashes of what stands in examples and comes to mind first.
_WELL_KNOWN: Final = frozenset(
    hashlib.sha256(word).hexdigest()
    for word in (b"", b"test", b"password", b"token", b"secret", b"changeme")
)
_HOST: Final = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\Z")


class Role(StrEnum):
    """What a caller may do; each may do what those before it may."""

    VIEWER = "viewer"  # sees everything, changes nothing
    OPERATOR = "operator"  # acts on entries, groups, jobs and breakers
    APPROVER = "approver"  # approves what an operator proposed

    def covers(self, needed: Role) -> bool:
        """True if this role may do what *needed* may."""
        order = list(Role)
        return order.index(self) >= order.index(needed)


class DashboardToken(Section):
    """A caller: his name in the audit, what he may do, and the hash by which he is known."""

    name: str
    role: Role
    #: SHA-256 of the token, in hex; a token has 256 bits of chance, so it needs no slow hash.
    sha256: str = Field(repr=False)

    @field_validator("name")
    @classmethod
    def _is_name(cls, given: str) -> str:
        if not _NAME.match(given):
            msg = "a name has up to 64 letters, digits, dots, dashes, underscores and @"
            raise ValueError(msg)
        from angzarr.analysis.replay.job import AUTOMATIC
        from angzarr.analysis.replay.job_limits import is_anybody

        if given.partition("@")[0].casefold() == AUTOMATIC or is_anybody(given):
            msg = f"is what angzarr calls itself in the audit: a person has a name besides {given}"
            raise ValueError(msg)
        return given

    @field_validator("sha256")
    @classmethod
    def _is_hash(cls, given: str) -> str:
        if not _SHA256.match(given):
            msg = "is not a SHA-256 in hex: `angzarr dashboard token NAME --role ROLE` prints one"
            raise ValueError(msg)
        if given in _WELL_KNOWN:
            msg = "is the hash of a word that all guess: `angzarr dashboard token` makes a token"
            raise ValueError(msg)
        return given


class DashboardSettings(Section):
    """Who may use the HTTP API and the dashboard (spec A5, A6)."""

    #: Without any, it serves this machine alone, to callers with the token that its start printed.
    tokens: tuple[DashboardToken, ...] = ()
    #: Names under which people reach it, besides those of this machine.
    hosts: tuple[str, ...] = Field(default=(), repr=False)
    #: Signs sessions. Without it each process has its own, and a restart ends all sessions.
    session_key: SecretStr | None = None
    #: Requests a second that one caller may make, on average and at once.
    rate: float = Field(default=20, gt=0)
    burst: int = Field(default=60, ge=1)

    @field_validator("tokens")
    @classmethod
    def _are_different(cls, given: tuple[DashboardToken, ...]) -> tuple[DashboardToken, ...]:
        if len({token.name for token in given}) < len(given):
            msg = "two tokens have one name: the audit could not tell them apart"
            raise ValueError(msg)
        return given

    @field_validator("hosts")
    @classmethod
    def _are_names(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        if not all(map(_is_host, given)):
            msg = "are names alone, like dlq.example.com: no scheme, port, path or *"
            raise ValueError(msg)
        return given

    @field_validator("session_key")
    @classmethod
    def _is_long(cls, given: SecretStr | None) -> SecretStr | None:
        if given is not None and len(given.get_secret_value()) < SHORTEST_SESSION_KEY:
            msg = f"is shorter than {SHORTEST_SESSION_KEY} characters and could be guessed"
            raise ValueError(msg)
        return given


def _is_host(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return _HOST.match(name) is not None
    return True
