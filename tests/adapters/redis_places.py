"""Where each message lies in Redis: in a list, or in the unacked hash of one session."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import redis

from angzarr.adapters.redis.session import split_held


class Place(NamedTuple):
    """A list (then *tag* is empty) or an unacked hash; *origin* is the list it comes from."""

    key: str
    tag: str
    origin: str
    redelivered: bool

    @property
    def age(self) -> tuple[int, ...]:
        return tuple(int(part) for part in self.tag.split(":")[-2:])


class Places(NamedTuple):
    """All messages by number, and the numbers in each list, that which is fetched next first."""

    of: dict[int, list[Place]]
    lists: dict[str, list[int]]
    leases: dict[str, bool]


def look(client: redis.Redis, prefix: str) -> Places:
    """Read everything below *prefix*; messages carry their number in a header ``n``."""
    found = Places({}, {}, {})
    sessions = f"{prefix}unacked:owners"
    for key in sorted(client.scan_iter(f"{prefix}*", count=1000)):
        name, kind = key.decode(), client.type(key)
        if kind == b"list":
            found.lists[name] = [
                _add(found, name, "", name, raw) for raw in reversed(client.lrange(key, 0, -1))
            ]
        elif kind == b"hash" and name.startswith(f"{prefix}unacked:"):
            for tag, value in client.hgetall(key).items():
                origin, raw = split_held(value)
                _add(found, name, tag.decode(), origin.decode(), raw)
            session = name.removeprefix(f"{prefix}unacked:")
            found.leases[name] = bool(client.exists(session.rpartition("#")[0]))
            assert client.zscore(sessions, session) is not None, f"nobody will ever look at {name}"
    return found


def _add(found: Places, key: str, tag: str, origin: str, raw: bytes) -> int:
    envelope: Any = json.loads(raw)
    flags = {envelope["headers"].get("redelivered", False)}
    flags.add(envelope["properties"]["delivery_info"].get("redelivered", False))
    assert len(flags) == 1, envelope
    number = envelope["headers"]["n"]
    found.of.setdefault(number, []).append(Place(key, tag, origin, flags == {True}))
    return number
