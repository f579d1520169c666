"""Angzarr's defaults for Celery's settings. A user's own setting always wins.

Celery's `add_defaults` puts defaults above `config_from_object`, and forgets them when Celery reads
that a second time. Ours lie just above Celery's own defaults, and are laid again at each reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final

from celery.app.utils import Settings

#: Of Celery's Redis result backend, in seconds; Celery waits 120, and for a connect as long as the
#: kernel does. For a mute one the tracer waits twice, to store the result and then the failure to
#: do so: 6 s, which fit into the grace of 7.5 s of what returns just when SIGTERM comes.
RESULT_DEFAULTS: Final[Mapping[str, Any]] = {
    "redis_socket_timeout": 3.0,
    "redis_socket_connect_timeout": 2.0,
}
#: How often a worker sends Redis a result again whose sending failed: Celery would 20 times,
#: however long each takes; here no try begins more than `timeout` seconds after the first. Workers
#: only: with the same policy a publisher that waits for results gives up waiting, for good.
_RETRIES: Final[Mapping[str, Any]] = {
    "max_retries": 3,
    "interval_start": 0,
    "interval_step": 1,
    "interval_max": 1,
    "timeout": 2.0,
}


def bound_retries(conf: Any) -> None:
    """Bound how long a worker sends one result, below what the user set."""
    given = conf.result_backend_transport_options or {}
    conf.result_backend_transport_options = {"retry_policy": dict(_RETRIES), **given}


CONSUMER: Final = "angzarr.adapters.celery.worker.consumer:AngzarrConsumer"

DEFAULTS: Final[Mapping[str, Any]] = {
    "task_acks_late": True,
    "task_reject_on_worker_lost": True,
    # The letter is durable before a failure reaches the tracer, so its message may go.
    "task_acks_on_failure": True,
    # A run that the hard time limit cut is given back; started claims are counted (D4).
    "task_acks_on_timeout": False,
    "task_serializer": "json",
    "result_serializer": "json",
    "event_serializer": "json",
    "accept_content": ["json"],
    "result_accept_content": ["json"],
    "worker_prefetch_multiplier": 1,
    "broker_connection_retry_on_startup": True,
    # Seconds that a publisher waits for a connection of the pool, for ever in Celery: as long as
    # another may wait for its confirm.
    "broker_pool_acquire_timeout": 30.0,
    # Celery gives up after 100 tries, and three quarters of an hour.
    "broker_connection_max_retries": None,
    # What runs goes on. Its message comes again, finds the claim alive and waits for its end.
    "worker_cancel_long_running_tasks_on_connection_loss": False,
    "task_default_delivery_mode": "persistent",
    # Seconds that a dead child's result may still take to arrive (10 by default). Declaring it
    # lost too early is harmless: what it settled is found settled.
    "worker_lost_wait": 2.0,
    # Celery's own drops what it cannot read, and dies of some of it.
    "worker_consumer": CONSUMER,
    # What runs when SIGTERM comes may go on so long; 2.3 s later at most all is over.
    "worker_soft_shutdown_timeout": 7.5,
    **RESULT_DEFAULTS,
}

#: What RabbitMQ needs besides: native delays want quorum queues behind a topic exchange.
AMQP_DEFAULTS: Final[Mapping[str, Any]] = {
    "task_default_queue_type": "quorum",
    "task_default_exchange_type": "topic",
    "task_create_missing_queue_type": "quorum",
    "task_create_missing_queue_exchange_type": "topic",
}
#: Scheme of a broker → what its transport is told, below `broker_transport_options`.
_TRANSPORT: Final[Mapping[str, Mapping[str, Any]]] = {
    "amqp": {"confirm_publish": True},
    "amqps": {"confirm_publish": True},
    "pyamqp": {"confirm_publish": True},
    "memory": {"polling_interval": 0.01},
}


class OwnDefaults(dict[str, Any]):
    """The layer between the user's settings and Celery's defaults."""


def lay(conf: Any, *, amqp: bool) -> None:
    """Put our defaults under what the user gave in *conf*; again, they follow the broker."""
    ours = next((kept for kept in conf.maps if isinstance(kept, OwnDefaults)), None)
    if ours is None:
        ours = OwnDefaults()
        for layers in (conf.maps, conf.defaults):
            layers.insert(len(layers) - 1, ours)
        ours.update(deepcopy(dict(DEFAULTS)))
    for name, value in AMQP_DEFAULTS.items():
        if amqp:
            ours[name] = value
        else:
            ours.pop(name, None)


def is_given(conf: Any, name: str) -> bool:
    """True if a user set *name*, under any of its names."""
    given = [kept for kept in conf.maps[:-1] if not isinstance(kept, OwnDefaults)]
    return name in Settings({}, given, conf._keys, conf.prefix)  # noqa: SLF001 - Celery's own view


def with_transport_defaults(broker: Any, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """The transport options for *broker*, a URL or several; those *given* win."""
    first = broker if isinstance(broker, str) else next(iter(broker or ()), "")
    return {**_TRANSPORT.get(str(first).partition(":")[0], {}), **(given or {})}
