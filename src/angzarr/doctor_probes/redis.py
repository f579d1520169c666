"""Every Redis that an app uses: as broker, store of claims or flow, result backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

from angzarr.adapters.celery import doctor as celery_doctor
from angzarr.doctor import redis_rules
from angzarr.doctor.finding import Finding, Fix, Probe
from angzarr.doctor_probes import DoctorTarget
from angzarr.wiring import stores as wiring

_SCHEMES: Final = ("redis://", "rediss://")
#: How kombu spells in a URL what redis-py spells otherwise.
_SPELT: Final = {"CERT_REQUIRED": "required", "CERT_OPTIONAL": "optional", "CERT_NONE": "none"}


def probes(target: DoctorTarget) -> Iterator[Probe]:
    """A probe of each Redis."""
    for at, (url, roles) in _servers(target).items():
        yield Probe(at=at, look=_look(target, at, url, roles), **failing(target))
    if target.broker_url.startswith("sentinel"):
        yield _sentinel(target)


def failing(target: DoctorTarget) -> dict[str, Any]:
    """The errors of a Redis client besides our own, where the app uses a Redis."""
    if not _servers(target):
        return {}
    return {"failures": wiring.redis_adapter("angzarr.adapters.redis.doctor").FAILURES}


def config_set(target: DoctorTarget, fix: Fix) -> str:
    """Make *fix*; return what a person must still do."""
    url, _ = _servers(target)[fix.at]
    with _asking(target, url) as ask:
        done: str = wiring.redis_adapter("angzarr.adapters.redis.doctor").config_set(
            ask, *fix.arguments
        )
    return done


def counts(target: DoctorTarget, queues: list[str]) -> dict[str, int]:
    """The number of messages that wait in *queues* of a Redis broker; none of another's."""
    if not target.broker_url.startswith(_SCHEMES):
        return {}
    prefix, steps = celery_doctor.waiting_lists(target.app)
    with _asking(target, target.broker_url) as ask:
        waiting = wiring.redis_adapter("angzarr.adapters.redis.doctor").waiting(
            ask, queues, prefix, steps
        )
    return dict(waiting)


def _servers(target: DoctorTarget) -> dict[str, tuple[str, list[str]]]:
    """Each server by its name: the first URL that leads there, and what it is used for."""
    found: dict[str, tuple[str, list[str]]] = {}
    for role, url in _urls(target):
        if url and url.startswith(_SCHEMES):
            _, roles = found.setdefault(_name(target, url), (url, []))
            roles.append(role)
    return found


def _urls(target: DoctorTarget) -> Iterator[tuple[str, str | None]]:
    yield "broker", target.broker_url
    if target.ours:
        yield "store", target.settings.store
        yield "flow store", target.settings.flow.store
    yield "results", str(target.app.conf.result_backend or "")


def _name(target: DoctorTarget, url: str) -> str:
    with closing(_client(target, url)) as client:
        return f"Redis at {client.address.rpartition('/')[0]}"


def _client(target: DoctorTarget, url: str) -> Any:
    for ours, theirs in _SPELT.items():
        url = url.replace(ours, theirs)
    first = url.split(";", 1)[0]
    return wiring.redis_adapter("angzarr.adapters.redis.link").RedisClient(
        first, timeout=target.timeout
    )


@contextmanager
def _asking(target: DoctorTarget, url: str) -> Iterator[Callable[..., Any]]:
    with closing(_client(target, url)) as client:
        yield client.execute


def _look(
    target: DoctorTarget, at: str, url: str, roles: list[str]
) -> Callable[[], Iterator[Finding]]:
    def look() -> Iterator[Finding]:
        doctor = wiring.redis_adapter("angzarr.adapters.redis.doctor")
        with _asking(target, url) as ask:
            seen = doctor.examine(ask, at, roles)
            if "broker" in roles:
                seen = _with_held(target, doctor, ask, seen)
        yield from redis_rules.findings(seen)

    return look


def _with_held(target: DoctorTarget, doctor: Any, ask: Any, seen: Any) -> Any:
    """*seen* with the messages that workers hold for too long, where kombu's transport has them."""
    visible = celery_doctor.visibility(target.app, "redis")
    if visible is None:
        return seen
    held = doctor.held_longer(ask, visible, *celery_doctor.held_keys(target.app))
    return redis_rules.with_held(seen, visible, held)


def _sentinel(target: DoctorTarget) -> Probe:
    """A probe of the master that sentinels name, by the app's own connection."""

    def look() -> Iterator[Finding]:
        doctor = wiring.redis_adapter("angzarr.adapters.redis.doctor")
        with target.app.connection_for_write() as connection:
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=2)
            with connection.default_channel.conn_or_acquire() as client:
                seen = doctor.examine(client.execute_command, at, ["broker"])
        yield from redis_rules.findings(seen)

    at = "Redis behind Sentinel"
    connection = target.app.connection_for_write()
    away = (*connection.connection_errors, *connection.channel_errors, OSError)
    return Probe(at=at, look=look, failures=away)
