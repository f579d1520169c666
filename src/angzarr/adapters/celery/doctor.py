"""Reads the settings of any Celery app for the doctor. It asks no server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

from celery import Celery

from angzarr.adapters.celery.publish.publisher import native_delay, transport_of
from angzarr.adapters.celery.worker import safety
from angzarr.adapters.celery.worker.runtime import runtime_of
from angzarr.doctor.celery_rules import CONSUMER_TIMEOUT, CelerySeen, TimesSeen
from angzarr.doctor.refusal_rules import StockSeen
from angzarr.errors import ConfigurationError

#: Seconds that kombu's transports leave a message with a worker, where nothing is said.
_VISIBILITY: Final = {"redis": 3600, "sqs": 1800}
#: What SQS takes at most.
_MOST_VISIBILITY: Final = {"sqs": timedelta(hours=12)}


def prepare(app: Celery) -> None:
    """Import what a worker would import, so that all tasks are known."""
    app.loader.import_default_modules()
    app.finalize(auto=True)
    transport_name(app)  # refused now where its client is missing, and queues are made once
    list(app.amqp.queues)


def transport_name(app: Celery) -> str:
    """The driver type of kombu in small letters; raises ConfigurationError for an unknown one."""
    try:
        return transport_of(app).lower()
    except (ImportError, KeyError) as error:
        what = getattr(error, "name", None) or error
        msg = (
            f"the transport of broker_url cannot be had ({what}): install the client, e.g."
            " celery[redis] or celery[sqs], or correct the address"
        )
        raise ConfigurationError(msg) from error
    except ValueError:  # its text may have a part of the password
        msg = (
            "broker_url cannot be read: write it as scheme://user:password@host:port/…, a / of a"
            " password as %2F"
        )
        raise ConfigurationError(msg) from None


def celery_seen(app: Celery, at: str, *, ours: bool) -> CelerySeen:
    """The settings that are in force."""
    conf, transport = app.conf, transport_name(app)
    return CelerySeen(
        at=at,
        ours=ours,
        transport=transport,
        unsafe=list(safety.unsafe(app, transport)),
        time_limited=any(task.time_limit or conf.task_time_limit for _, task in _tasks(app)),
        kombus_redis=transport == "redis" and not _ours(app),
        prefetch=int(conf.worker_prefetch_multiplier or 0),
        connection_tries=conf.broker_connection_max_retries,
        protocol=int(conf.task_protocol),
        result_backend=str(conf.result_backend or "").partition(":")[0],
        result_wait=conf.redis_socket_timeout,
        transient=[kind for kind in ("control", "event") if _is_transient(conf, kind)],
        classic=list(_classic(app)) if transport == "amqp" else (),
    )


def stock_seen(app: Celery, at: str) -> StockSeen:
    """The relevant settings of an app that is not ours."""
    conf, queues = app.conf, list(app.amqp.queues.values())
    rejects = not safety.in_force(conf, "task_acks_on_failure")
    return StockSeen(
        at=at,
        transport=transport_name(app),
        retrying=[name for name, task in _tasks(app) if _retries(task)],
        acks_late=any(task.acks_late for _, task in _tasks(app)),
        reject_on_worker_lost=any(task.reject_on_worker_lost for _, task in _tasks(app)),
        dead_letter_exchange=rejects
        and bool(queues)
        and all("x-dead-letter-exchange" in (one.queue_arguments or {}) for one in queues),
        native_delays=bool(queues) and all(native_delay(app, one) for one in queues),
        eta_limit=conf.worker_eta_task_limit,
        soft_shutdown=float(conf.worker_soft_shutdown_timeout or 0),
    )


def times_seen(
    app: Celery, at: str, *, ours: bool, grace: timedelta | None, longest_delay: timedelta | None
) -> TimesSeen:
    """The time spans of an app; the operator states *grace* and *longest_delay*."""
    transport = transport_name(app)
    limits = [task.time_limit or app.conf.task_time_limit for _, task in _tasks(app)]
    held = _holds_delays(app, ours=ours)
    return TimesSeen(
        at=at,
        visibility=visibility(app, transport),
        most_visibility=_MOST_VISIBILITY.get(transport),
        consumer_timeout=CONSUMER_TIMEOUT if transport == "amqp" else None,
        longest_run=timedelta(seconds=max(limits)) if limits and all(limits) else None,
        longest_delay=longest_delay if held else None,
        soft_shutdown=_soft_shutdown(app, ours=ours),
        grace=grace,
    )


def _soft_shutdown(app: Celery, *, ours: bool) -> timedelta:
    """The time that running tasks have after SIGTERM; our setting wins over the app's code."""
    set_: timedelta | None = runtime_of(app).soft_shutdown_timeout if ours else None
    return (
        timedelta(seconds=float(app.conf.worker_soft_shutdown_timeout or 0))
        if set_ is None
        else set_
    )


def visibility(app: Celery, transport: str) -> timedelta | None:
    """The time until a broker redelivers an unacknowledged message; None: by leases, or never.

    Our transport for Redis does not: a message changes hands when its owner is gone.
    """
    if transport not in _VISIBILITY or (transport == "redis" and _ours(app)):
        return None
    given = app.conf.broker_transport_options or {}
    return timedelta(seconds=float(given.get("visibility_timeout", _VISIBILITY[transport])))


def waiting_lists(app: Celery) -> tuple[str, list[int]]:
    """The prefix of a Redis broker's keys, and the priorities that have lists there."""
    given = app.conf.broker_transport_options or {}
    return str(given.get("global_keyprefix", "")), list(given.get("priority_steps", (0, 3, 6, 9)))


def held_keys(app: Celery) -> tuple[str, str]:
    """The keys under which kombu's Redis transport keeps unacknowledged messages."""
    given: Mapping[str, Any] = app.conf.broker_transport_options or {}
    prefix = str(given.get("global_keyprefix", ""))
    held = given.get("unacked_key", "unacked")
    return f"{prefix}{held}", f"{prefix}{given.get('unacked_index_key', 'unacked_index')}"


def _holds_delays(app: Celery, *, ours: bool) -> bool:
    """True if workers hold delayed messages; ours keep them in a store."""
    return not ours and not all(native_delay(app, one) for one in app.amqp.queues.values())


def _tasks(app: Celery) -> Iterator[tuple[str, Any]]:
    return (one for one in sorted(app.tasks.items()) if not one[0].startswith("celery."))


def _retries(task: Any) -> bool:
    """True if a task retries: by itself, or since its code names ``retry``."""
    if getattr(task, "autoretry_for", None):
        return True
    code = getattr(getattr(task, "_orig_run", task.run), "__code__", None)
    return "retry" in getattr(code, "co_names", ())


def _classic(app: Celery) -> Iterator[str]:
    for name, queue in app.amqp.queues.items():
        if (queue.queue_arguments or {}).get("x-queue-type", "classic") == "classic":
            yield str(name)


def _is_transient(conf: Any, kind: str) -> bool:
    return not (conf[f"{kind}_queue_exclusive"] or conf[f"{kind}_queue_durable"])


def _ours(app: Celery) -> bool:
    """True if the broker's transport is one of this package."""
    return type(app.pool.connection.transport).__module__.startswith("angzarr.")
