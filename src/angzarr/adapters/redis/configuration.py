"""Configurations and pins on Redis: scripts, so that a version never changes.

All keys of the configurations share one hash tag, and so one slot of a Redis Cluster. The pins of
an event lie under the key of its claim. What others wrote there counts as absent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any, Final

from angzarr.adapters.redis.link import RedisClient, Script, whole_ms
from angzarr.configuration.pins import PIN_LIFE
from angzarr.configuration.version import (
    ConfigurationAct,
    ConfigurationBody,
    ConfigurationChoice,
    ConfigurationDraft,
    ConfigurationVersion,
    PutVersion,
    VersionInfo,
    unknown_version,
    version_exists,
)
from angzarr.errors import ConfigurationUnfit

_PUT: Final = Script("configuration_put.lua")
_CHOOSE: Final = Script("configuration_choose.lua")
_CURRENT: Final = Script("configuration_current.lua")
_KEEP: Final = Script("pins_keep.lua")
#: A field of the hash of what is said that is not a version's.
_LAST: Final = ":last"
#: What reading anything else than a version may raise.
_ODD: Final = (
    ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError,
    ConfigurationUnfit,
)  # fmt: skip


class RedisConfigurationStore:
    """Fulfils `ConfigurationStore` under ``{prefix}:{config}:…`` (braces and all).

    Nothing there ends by itself: the server must not evict keys, and must write them to a disk.
    """

    def __init__(self, client: RedisClient, *, prefix: str = "angzarr") -> None:
        self._client = client
        self._base = f"{prefix}:{{config}}"

    def get(self, id: str, version: str, /) -> ConfigurationVersion | None:
        """The version of that name, in one round trip."""
        infos, bodies, _ = self._keys(id)
        info, body = self._client.execute_many(
            [("HGET", infos, version), ("HGET", bodies, version)]
        )
        return _read(id, version, info, body)

    def current(self, id: str, /) -> ConfigurationVersion | None:
        """The version that was put or chosen last, in one round trip."""
        reply = self._client.run(_CURRENT, self._keys(id))
        return _read(id, *reply) if reply else None

    def put(self, draft: ConfigurationDraft, /) -> PutVersion:
        """Keep *draft*, and make it current, in one round trip."""
        keys = (f"{self._base}:ids", *self._keys(draft.id))
        told = _told(draft.act, schema=draft.body.schema is not None)
        body = json.dumps(list(draft.body))
        fresh, *kept = self._client.run(_PUT, keys, draft.id, draft.version or "", body, told)
        if fresh < 0:
            raise version_exists(draft.id, draft.version or "")
        version, info, text = kept
        found = _read(draft.id, version, info, text)
        if found is None:
            msg = f"configuration_put.lua answered {kept!r}"
            raise AssertionError(msg)
        return PutVersion(found, fresh=fresh == 1)

    def choose(self, id: str, version: str, act: ConfigurationAct, /) -> bool:
        """Make *version* the current one."""
        infos, _, choices = self._keys(id)
        answer = self._client.run(_CHOOSE, (infos, choices), version, _told(act))
        if answer < 0:
            raise unknown_version(id, version)
        return bool(answer)

    def versions(self, id: str, /) -> list[VersionInfo]:
        """All versions of *id*, without their bodies."""
        said = _pairs(self._client.execute("HGETALL", self._keys(id)[0]))
        said.pop(_LAST, None)
        read = (_read_info(id, version, text) for version, text in said.items())
        return sorted((one for one in read if one is not None), key=lambda info: info.number)

    def choices(self, id: str, /) -> list[ConfigurationChoice]:
        """All versions that became the current one."""
        rows = self._client.execute("LRANGE", self._keys(id)[2], 0, -1)
        return [one for one in map(_read_choice, rows) if one is not None]

    def ids(self) -> list[str]:
        """All configurations."""
        return sorted(self._client.execute("SMEMBERS", f"{self._base}:ids"))

    def close(self) -> None:
        """Close the idle connections."""
        self._client.close()

    def _keys(self, id: str) -> tuple[str, str, str]:
        return tuple(f"{self._base}:{what}:{id}" for what in ("said", "body", "current"))  # type: ignore[return-value]


class RedisPinStore:
    """Fulfils `PinStore`, one hash a claim: ``{prefix}:pins:{key}``; it ends by itself."""

    def __init__(
        self, client: RedisClient, *, prefix: str = "angzarr", life: timedelta = PIN_LIFE
    ) -> None:
        self._client = client
        self._prefix = prefix
        self._life_ms = whole_ms(life)

    def keep(self, key: str, pins: Mapping[str, str], /) -> Mapping[str, str]:
        """Keep what *key* has no pin for, in one round trip."""
        told = chain.from_iterable(pins.items())
        return _pairs(self._client.run(_KEEP, (self._key(key),), self._life_ms, *told))

    def read(self, key: str, /) -> Mapping[str, str]:
        """All pins under *key*."""
        return _pairs(self._client.execute("HGETALL", self._key(key)))

    def _key(self, key: str) -> str:
        return f"{self._prefix}:pins:{key}"


def _pairs(reply: Sequence[str]) -> dict[str, str]:
    return dict(zip(reply[::2], reply[1::2], strict=True))


def _told(act: ConfigurationAct, **besides: object) -> str:
    """*act* as the scripts keep it, in ASCII."""
    return json.dumps({"by": act.author, "at": act.at.isoformat(), "note": act.note, **besides})


def _act(said: Mapping[str, Any]) -> ConfigurationAct:
    at = datetime.fromisoformat(said["at"]).astimezone(UTC)
    return ConfigurationAct(author=said["by"], at=at, note=said["note"])


def _read_info(id: str, version: str, info: Any) -> VersionInfo | None:
    """What the scripts wrote of a version, None if they did not."""
    try:
        number, text = info.split(" ", 1)
        said = json.loads(text)
        return VersionInfo(
            id=id,
            version=version,
            number=int(number),
            act=_act(said),
            has_schema=said["schema"] is True,
        )
    except _ODD:
        return None


def _read(id: str, version: str, info: Any, body: Any) -> ConfigurationVersion | None:
    """The version whose *info* and *body* the scripts wrote, None if they did not."""
    found = _read_info(id, version, info)
    try:
        value, schema = json.loads(body)
    except _ODD:
        return None
    if found is None:
        return None
    return ConfigurationVersion(info=found, body=ConfigurationBody(value, schema))


def _read_choice(row: str) -> ConfigurationChoice | None:
    try:
        version, kind, said = row.split(" ", 2)
        act = _act(json.loads(said))
    except _ODD:
        return None
    return ConfigurationChoice(version=version, act=act, put=kind == "put")
