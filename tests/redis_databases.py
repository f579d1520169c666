"""Databases of a Redis server, each one test session's; database 0 says which are taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

#: Seconds after which a claim ends by itself: no session takes as long.
LONGEST = 7200

#: Each in one step: between a look and a write another session may have claimed it.
_TAKE = """
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[3])
return 1
"""
_LET_GO = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0"


def claim(index: Any, session: int) -> int | None:
    """Return the number of a database that is *session*'s from now on; None: all are taken.

    A session is known by its process; one that died has its database taken away, once.
    """
    last = int(index.config_get("databases")["databases"]) - 1
    for number in range(1, last + 1):
        holder = index.get(_key(number)) or b""
        if holder and Path(f"/proc/{int(holder)}").exists():
            continue
        if index.eval(_TAKE, 1, _key(number), holder, session, LONGEST):
            return number
    return None


def let_go(index: Any, number: int, session: int) -> None:
    """End the claim of *session*; one that ended by itself may be another's by now."""
    index.eval(_LET_GO, 1, _key(number), session)


def _key(number: int) -> str:
    return f"angzarr-test:{number}"
