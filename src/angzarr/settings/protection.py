"""The settings of what dead letters may show, who can open them and who may have written them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from pydantic import Field, SecretStr, field_validator, model_validator

from angzarr.dead_letters.foreign_replay import RecordRoute
from angzarr.dead_letters.masking import compiled
from angzarr.dead_letters.protection import Encrypt
from angzarr.dead_letters.redaction import parse
from angzarr.settings.base import Section
from angzarr.settings.keys import check_key_ids, current_key, encryption_keys

T = TypeVar("T")

#: Shorter ones can be guessed.
SHORTEST_SECRET: Final = 16
#: What a letter's paths begin with.
_ROOTS: Final = ("event", "args", "kwargs", "embed", "headers", "properties", "metadata", "*", "**")


class ForeignRoute(Section):
    """The task that takes others' letters of one type, and the queue it is sent to."""

    task: str = Field(min_length=1)
    queue: str = Field(min_length=1)


class ProtectionSettings(Section):
    """The redaction, sealing, signing and acceptance of letters (spec L3)."""

    #: Paths of values, see docs/reference/dead-letters.md.
    redact: tuple[str, ...] = ()
    #: Regular expressions for free text.
    redact_text: tuple[str, ...] = ()
    #: By key id: base64 of 32 bytes.
    encryption_keys: dict[str, SecretStr] = Field(default_factory=dict)
    encryption_key: str | None = Field(default=None, repr=False)
    #: By default `redacted` where there are keys.
    encrypt: Encrypt | None = None
    signing_keys: dict[str, SecretStr] = Field(default_factory=dict)
    signing_key: str | None = Field(default=None, repr=False)
    #: Whether a replay takes letters without any signature although there are signing keys.
    accept_unsigned: bool = False
    #: By domain, then by full type name or "*".
    foreign_routes: dict[str, dict[str, ForeignRoute]] = Field(default_factory=dict)

    @field_validator("redact")
    @classmethod
    def _paths(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for path in given:
            root = parse(path)[0]
            if root not in _ROOTS:
                listed = ", ".join(_ROOTS)
                msg = f"{path!r} begins with {root!r}, where no letter has anything: use {listed}"
                raise ValueError(msg)
        return given

    @field_validator("redact_text")
    @classmethod
    def _patterns(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        _each(compiled, given)
        return given

    @model_validator(mode="after")
    def _keys_work(self) -> ProtectionSettings:
        check_key_ids([*self.encryption_keys, *self.signing_keys])
        self.opening_keys()
        self.verifying_keys()
        sealing = current_key("encryption_key", self.encryption_key, self.encryption_keys)
        current_key("signing_key", self.signing_key, self.signing_keys)
        if sealing is None and self.encrypt in (Encrypt.REDACTED, Encrypt.ALL):
            msg = f"encrypt {self.encrypt.value!r} needs encryption_keys"
            raise ValueError(msg)
        if self.accept_unsigned and not self.signing_keys:
            msg = "accept_unsigned says nothing without signing_keys: every letter is accepted then"
            raise ValueError(msg)
        return self

    def opening_keys(self) -> dict[str, bytes]:
        """The encryption keys; raises ValueError, which never shows one."""
        return encryption_keys(self.encryption_keys)

    def verifying_keys(self) -> dict[str, bytes]:
        """The signing keys; raises ValueError, which never shows one."""
        return {name: _secret(name, given) for name, given in self.signing_keys.items()}

    def encrypted(self) -> Encrypt:
        """The rule of which letters are sealed."""
        return self.encrypt or (Encrypt.REDACTED if self.encryption_keys else Encrypt.NONE)

    def routes_of_others(self) -> dict[str, dict[str, RecordRoute]]:
        """The rule of who takes others' letters."""
        return {
            domain: {name: RecordRoute(route.task, route.queue) for name, route in types.items()}
            for domain, types in self.foreign_routes.items()
        }


def _each(check: Callable[[str], T], given: Iterable[str]) -> None:
    for one in given:
        check(one)


def _secret(name: str, given: SecretStr) -> bytes:
    secret = given.get_secret_value()
    if len(secret) < SHORTEST_SECRET:
        msg = (
            f"signing_keys.{name} is shorter than {SHORTEST_SECRET} characters:"
            " make one with `openssl rand -base64 32`"
        )
        raise ValueError(msg)
    return secret.encode()
