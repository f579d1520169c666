"""Examination: what a Redis tells of itself, for the doctor; only reads.

A managed Redis forbids CONFIG, an ACL may forbid more: what may not be asked is unknown.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from redis.exceptions import RedisError

from angzarr.adapters.redis.server import fields_of, may_not_be_asked
from angzarr.doctor.redis_rules import RedisSeen
from angzarr.errors import StoreUnavailable

#: Sends one command.
Ask = Callable[..., Any]
#: What workers hold by kombu's transport is looked at up to this many messages.
_HELD: Final = 200
#: Between a queue's name and a priority in the key of its list; kombu's.
_PRIORITY: Final = "\x06\x16"
#: What a server raises that speaks another protocol.
FAILURES: Final = (RedisError,)
#: What reading anything else than a message may raise.
_ODD: Final = (
    ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError, OverflowError
)  # fmt: skip


def examine(ask: Ask, at: str, roles: Sequence[str]) -> RedisSeen:
    """What the Redis that *ask* sends commands to says; raises what it does if away."""
    told: dict[str, str] = {}
    for section in ("server", "memory", "persistence", "replication", "cluster"):
        told |= fields_of(_text(_asked(ask, "INFO", section) or ""))
    return RedisSeen(
        at=at,
        roles=tuple(roles),
        version=told.get("redis_version"),
        role=told.get("role"),
        cluster=_flag(told, "cluster_enabled"),
        maxmemory=_number(told, "maxmemory"),
        policy=told.get("maxmemory_policy"),
        used=_number(told, "used_memory"),
        append_only=_flag(told, "aof_enabled"),
        fsync=_config(ask, "appendfsync"),
        save=_config(ask, "save"),
        snapshots_work=_works(told, "rdb_last_bgsave_status"),
        appends_work=_works(told, "aof_last_write_status"),
        replicas=_number(told, "connected_slaves"),
        min_replicas=_whole(_config(ask, "min-replicas-to-write")),
        skew=_skew(ask),
    )


def waiting(ask: Ask, queues: Sequence[str], prefix: str, steps: Sequence[int]) -> dict[str, int]:
    """How many messages wait in the lists of *queues*, of all priorities *steps*."""
    counts = {}
    for queue in queues:
        keys = [f"{prefix}{queue}", *(f"{prefix}{queue}{_PRIORITY}{one}" for one in steps if one)]
        counts[queue] = sum(_asked(ask, "LLEN", key) or 0 for key in keys)
    return counts


def held_longer(ask: Ask, visibility: timedelta, held: str, index: str) -> int:
    """Count messages that workers are to hold beyond *visibility*: for later, by their ``eta``.

    *held* and *index* are the keys in which kombu's transport has them. At most some hundreds are
    looked at; what cannot be read is passed over.
    """
    flat = _asked(ask, "ZRANGE", index, 0, _HELD - 1, "WITHSCORES") or []
    taken = {_text(tag): float(score) for tag, score in _pairs(flat)}
    if not taken:
        return 0
    ends = ((began, _eta(partial(_asked, ask, "HGET", held, tag))) for tag, began in taken.items())
    return sum(eta is not None and eta - began >= visibility.total_seconds() for began, eta in ends)


def config_set(ask: Ask, name: str, value: str) -> str:
    """Set *name* to *value*, and in the server's file too; return what a person must still do."""
    ask("CONFIG", "SET", name, value)
    try:
        ask("CONFIG", "REWRITE")
    except (RedisError, StoreUnavailable):
        return f"write '{name} {value}' into its redis.conf too: it could not do so itself"
    return ""


def _asked(ask: Ask, *command: Any) -> Any:
    """The reply; None if the server refuses the question, or its answer is not a text."""
    try:
        return ask(*command)
    except UnicodeDecodeError:
        return None
    except (RedisError, StoreUnavailable) as error:
        if not may_not_be_asked(error):
            raise
        return None


def _config(ask: Ask, name: str) -> str | None:
    reply = _asked(ask, "CONFIG", "GET", name)
    if isinstance(reply, Mapping):
        reply = [one for pair in reply.items() for one in pair]
    return _text(reply[1]) if reply else None


def _skew(ask: Ask) -> timedelta | None:
    """How far the server's clock is ahead; nothing that the way there may explain."""
    before = time.time()
    reply = _asked(ask, "TIME")
    after = time.time()
    if not reply:
        return None
    there = int(reply[0]) + int(reply[1]) / 1e6
    if before <= there <= after:
        return timedelta(0)
    return timedelta(seconds=there - (after if there > after else before))


def _eta(get: Callable[[], object]) -> float | None:
    """When a held message is due, by what it says, which may be anything."""
    try:
        message = json.loads(_text(get()))[0]
        said = datetime.fromisoformat(message["headers"]["eta"])
        return (said if said.tzinfo else said.replace(tzinfo=UTC)).timestamp()
    except _ODD:
        return None


def _pairs(flat: Sequence[Any]) -> list[tuple[Any, Any]]:
    if flat and isinstance(flat[0], tuple | list):
        return [(one[0], one[1]) for one in flat]
    return list(zip(flat[::2], flat[1::2], strict=False))


def _text(value: object) -> str:
    if isinstance(value, Mapping):  # redis-py has read it
        return "\n".join(f"{name}:{one}" for name, one in value.items())
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _number(told: Mapping[str, str], name: str) -> int | None:
    return _whole(told.get(name))


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _flag(told: Mapping[str, str], name: str) -> bool | None:
    return told[name] == "1" if name in told else None


def _works(told: Mapping[str, str], name: str) -> bool | None:
    return told[name] == "ok" if name in told else None
