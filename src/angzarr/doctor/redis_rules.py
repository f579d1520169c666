"""What a Redis loses: by deleting keys, by forgetting them, by refusing to take them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from angzarr.doctor import finding
from angzarr.doctor.finding import Area, Check, Finding, Fix, Severity

#: The policy under which a full Redis answers with an error and deletes nothing.
NO_EVICTION: Final = "noeviction"
#: The fix that is one CONFIG SET.
CONFIG_SET: Final = "redis-config-set"
#: What holds messages, claims or delays, and not only results or breakers.
KEEPERS: Final = frozenset({"broker", "store"})
_FULL, _ALMOST_FULL = 0.95, 0.8
#: Whose scripts may say that they run on a full server (Redis 7; Valkey starts at 7.2).
_OLDEST: Final = (7, 0)
_NO_CLUSTER: Final = "Redis Cluster is not supported as a broker"
_STAY: Final = "claims may stay on the cluster"
_REDIS, _CRITICAL, _ERROR = Area.REDIS, Severity.CRITICAL, Severity.ERROR
_WARNING, _INFO = Severity.WARNING, Severity.INFO

EVICTS: Final = Check(
    id="redis-evicts",
    area=_REDIS,
    severity=_CRITICAL,
    looks_at="maxmemory, maxmemory-policy",
    why="a full Redis silently deletes keys: queues, delays and claims",
    fixable=True,
)
EVICTS_LATER: Final = Check(
    id="redis-would-evict",
    area=_REDIS,
    severity=_WARNING,
    looks_at="maxmemory-policy where maxmemory is not set",
    why="if maxmemory is set one day, Redis deletes queues, delays and claims",
    fixable=True,
)
NOT_PERSISTENT: Final = Check(
    id="redis-not-persistent",
    area=_REDIS,
    severity=_CRITICAL,
    looks_at="appendonly, save",
    why="a restart of Redis loses all messages, or those since the last snapshot",
    fixable=True,
)
FSYNC: Final = Check(
    id="redis-fsync",
    area=_REDIS,
    severity=_INFO,
    looks_at="appendfsync",
    why="a power cut loses the messages of the last second, or of many seconds",
)
DISK: Final = Check(
    id="redis-disk-fails",
    area=_REDIS,
    severity=_CRITICAL,
    looks_at="rdb_last_bgsave_status, aof_last_write_status",
    why="Redis cannot write to its disk: it refuses messages, or loses them at its next restart",
)
FULL: Final = Check(
    id="redis-full",
    area=_REDIS,
    severity=_WARNING,
    looks_at="used_memory against maxmemory",
    why="a Redis that is full refuses each message until some are taken out",
)
OLD: Final = Check(
    id="redis-unfit",
    area=_REDIS,
    severity=_ERROR,
    looks_at="redis_version, cluster_enabled (of a broker)",
    why="the transport refuses to work with it: no message is taken",
)
REPLICA: Final = Check(
    id="redis-replica",
    area=_REDIS,
    severity=_ERROR,
    looks_at="role",
    why="a replica takes no writes: no message can be published, claimed or acknowledged",
)
FAILOVER: Final = Check(
    id="redis-failover",
    area=_REDIS,
    severity=_WARNING,
    looks_at="min-replicas-to-write where there are replicas",
    why="a failover loses the messages that the master took and its replicas had not copied",
)
LONG_HELD: Final = Check(
    id="redis-delays-beyond-visibility",
    area=_REDIS,
    severity=_ERROR,
    looks_at="eta of what workers hold (unacked) against visibility_timeout",
    why="a delayed message that workers hold longer than the visibility time-out is delivered again"
    " and again, and runs as often",
)
CHECKS: Final = (
    EVICTS,
    EVICTS_LATER,
    NOT_PERSISTENT,
    FSYNC,
    DISK,
    FULL,
    OLD,
    REPLICA,
    FAILOVER,
    LONG_HELD,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisSeen:
    """A Redis as it says of itself; None is what it does not tell, or may not be asked."""

    at: str
    #: What it is used for: ``broker``, ``store``, ``flow store``, ``results``.
    roles: Sequence[str] = ("broker",)
    version: str | None = None
    role: str | None = None
    cluster: bool | None = None
    maxmemory: int | None = None
    policy: str | None = None
    used: int | None = None
    append_only: bool | None = None
    fsync: str | None = None
    #: The rules of snapshots, empty where there are none.
    save: str | None = None
    snapshots_work: bool | None = None
    appends_work: bool | None = None
    replicas: int | None = None
    min_replicas: int | None = None
    skew: timedelta | None = None
    #: The visibility time-out of kombu's transport, and how many messages it holds for longer.
    visibility: timedelta | None = None
    held_longer: int = 0


def findings(seen: RedisSeen) -> Iterator[Finding]:
    """The findings about a Redis, milder where it keeps results only."""
    for one in (*_memory(seen), *_persistence(seen)):
        yield one if KEEPERS & set(seen.roles) or not one.known else _for_results(one)
    yield from _server(seen)
    yield from finding.clock(seen.at, seen.skew)
    if seen.held_longer:
        yield LONG_HELD.found(
            seen.at,
            f"{seen.held_longer} messages are held beyond the visibility time-out of"
            f" {seen.visibility}",
            "set visibility_timeout beyond the longest countdown, or keep long delays in a"
            " database: on an app of ours they wait in the store",
        )


def _for_results(one: Finding) -> Finding:
    """A milder finding without its fix: a cache that evicts may be meant to."""
    milder = max(one.severity, _WARNING, key=lambda severity: severity.rank)
    return one.check.found(one.at, one.seen, one.change, severity=milder)


def _memory(seen: RedisSeen) -> Iterator[Finding]:
    if seen.policy is None or seen.maxmemory is None:
        yield EVICTS.unknown(
            seen.at,
            "it does not tell maxmemory and maxmemory-policy",
            f"see that maxmemory-policy is {NO_EVICTION} in the parameter group of the service",
        )
        return
    if seen.policy != NO_EVICTION:
        check = EVICTS if evicts(seen.maxmemory, seen.policy) else EVICTS_LATER
        yield check.found(
            seen.at,
            f"maxmemory {seen.maxmemory}, maxmemory-policy {seen.policy}",
            f"redis.conf: maxmemory-policy {NO_EVICTION} (now: CONFIG SET maxmemory-policy"
            f" {NO_EVICTION})",
            fix=_config_set(seen, "maxmemory-policy", NO_EVICTION),
        )
    share = (seen.used or 0) / seen.maxmemory if seen.maxmemory else 0.0
    if share >= _ALMOST_FULL:
        yield FULL.found(
            seen.at,
            f"{share:.0%} of maxmemory {seen.maxmemory} is used",
            "CONFIG SET maxmemory to more, or give queues more workers",
            severity=_ERROR if share >= _FULL else _WARNING,
        )


def _persistence(seen: RedisSeen) -> Iterator[Finding]:
    if seen.append_only is None:
        yield NOT_PERSISTENT.unknown(
            seen.at,
            "it does not tell whether it keeps an append-only file",
            "see that appendonly is yes, or that the service replicates to a disk",
        )
    elif not seen.append_only and seen.save is None:  # managed: it may be kept by other means
        yield NOT_PERSISTENT.found(
            seen.at,
            "appendonly no, and whether it makes snapshots is not told",
            "see that the service keeps an append-only file, or replicas in another zone",
            severity=_WARNING,
        )
    elif not seen.append_only:
        snapshots = f"snapshots only (save {seen.save})" if seen.save else "no snapshots either"
        yield NOT_PERSISTENT.found(
            seen.at,
            f"appendonly no, {snapshots}",
            "redis.conf: appendonly yes (now: CONFIG SET appendonly yes, then CONFIG REWRITE)",
            fix=_config_set(seen, "appendonly", "yes"),
        )
    elif seen.fsync in ("everysec", "no"):
        yield FSYNC.found(
            seen.at,
            f"appendfsync {seen.fsync}",
            "redis.conf: appendfsync always, where a power cut may lose nothing",
            severity=_INFO if seen.fsync == "everysec" else _WARNING,
        )
    works = {
        "rdb_last_bgsave_status": seen.snapshots_work,
        "aof_last_write_status": seen.appends_work,
    }
    if failing := [name for name, well in works.items() if well is False]:
        yield DISK.found(
            seen.at,
            f"err: {' and '.join(failing)}",
            "make room on its disk, and see its log for the reason",
        )


def _server(seen: RedisSeen) -> Iterator[Finding]:
    if seen.role in ("slave", "replica"):
        yield REPLICA.found(
            seen.at, f"role {seen.role}", "name the master, or all sentinels: sentinel://…"
        )
    unfit = unfitness(seen.version or "", cluster=bool(seen.cluster))
    if "broker" in seen.roles and unfit:
        yield OLD.found(seen.at, *unfit)
    if seen.replicas and seen.min_replicas == 0:
        yield FAILOVER.found(
            seen.at,
            f"{seen.replicas} replicas, min-replicas-to-write 0",
            "redis.conf: min-replicas-to-write 1 and min-replicas-max-lag 10; it then refuses"
            " writes that no replica could take",
        )


def evicts(maxmemory: int, policy: str) -> bool:
    """True if a Redis deletes keys to make room."""
    return maxmemory > 0 and policy != NO_EVICTION


def unfitness(version: str, *, cluster: bool) -> tuple[str, str] | None:
    """Why a server of *version* cannot be our broker, and the cure; None: it can."""
    if cluster:
        return (
            f"{_NO_CLUSTER}: the queues of one worker lie on several nodes",
            f"use a single Redis or Sentinel (sentinel://…) for broker_url; {_STAY}",
        )
    numbers = version.split(".")[:2]
    if version and all(map(str.isdecimal, numbers)) and tuple(map(int, numbers)) < _OLDEST:
        return (
            f"Redis {version} is too old for this transport, it needs Redis 7.0 or newer",
            "upgrade it, or set redis_transport: kombu to use kombu's own",
        )
    return None


def _config_set(seen: RedisSeen, name: str, value: str) -> Fix:
    return Fix(
        kind=CONFIG_SET,
        at=seen.at,
        what=f"CONFIG SET {name} {value} on {seen.at}, then CONFIG REWRITE",
        arguments=(name, value),
    )


def with_held(seen: RedisSeen, visibility: timedelta, held: int) -> RedisSeen:
    """*seen* with how many messages kombu's transport holds beyond its time-out."""
    return replace(seen, visibility=visibility, held_longer=held)
