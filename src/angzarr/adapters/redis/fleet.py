"""The fleet on Redis: a hash of what workers say, and sorted sets of when they said it.

First sights are measured by Redis, never by a worker's clock. All keys share one hash tag, and so
one slot of a Redis Cluster; owner leases lie in slots of their own, and are looked up besides.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from angzarr.adapters.redis.link import RedisClient, Script, whole_ms
from angzarr.fleet import RELEASE_LIFE, SAID_LIFE, FleetRelease, Member, read_member, told_member
from angzarr.resilience.idempotency import owner_lease_key

_REGISTER = Script("fleet_register.lua")
_MEMBERS = Script("fleet_members.lua")
_RELEASES = Script("fleet_releases.lua")


class RedisFleet:
    """Members and releases under ``{prefix}:{fleet}:…`` (braces and all).

    Owner leases are looked up under the same prefix.
    """

    def __init__(
        self,
        client: RedisClient,
        *,
        prefix: str = "angzarr",
        life: timedelta = RELEASE_LIFE,
        said_life: timedelta = SAID_LIFE,
    ) -> None:
        self._client = client
        self._prefix = prefix
        self._life = life
        self._said_life = said_life
        base = f"{prefix}:{{fleet}}"
        self._said = (f"{base}:said", f"{base}:said_at")
        self._releases = (f"{base}:first_seen", f"{base}:last_seen")

    def register(self, member: Member, /) -> None:
        """Keep what *member* says, and see its release, in one round trip."""
        self._client.run(
            _REGISTER,
            (*self._said, *self._releases),
            member.owner,
            told_member(member),
            whole_ms(self._said_life),
            json.dumps(member.release)[1:-1],  # in ASCII, and most names as they are
            whole_ms(self._life),
        )

    def members(self) -> Sequence[Member]:
        """All whose lease runs, by owner; two round trips."""
        told = self._client.run(_MEMBERS, self._said[:1])
        found = [
            member
            for owner, text in zip(told[::2], told[1::2], strict=True)
            if (member := read_member(owner, text)) is not None
        ]
        leases = [("EXISTS", owner_lease_key(self._prefix, member.owner)) for member in found]
        alive = self._client.execute_many(leases) if leases else []
        living = (member for member, runs in zip(found, alive, strict=True) if runs)
        return sorted(living, key=lambda member: member.owner)

    def releases(self) -> Sequence[FleetRelease]:
        """All releases, in the order in which they were first seen."""
        told = self._client.run(_RELEASES, self._releases)
        found = map(_release, told[::3], told[1::3], told[2::3])
        return [one for one in found if one is not None]


def _release(name: str, first: str, last: str) -> FleetRelease | None:
    """The release under the key *name*, None if that is not of our writing."""
    try:
        return FleetRelease(
            name=json.loads(f'"{name}"'), first_seen_at=_moment(first), last_seen_at=_moment(last)
        )
    except (ValueError, OverflowError, OSError):
        return None


def _moment(score: str) -> datetime:
    return datetime.fromtimestamp(float(score) / 1000, UTC)
