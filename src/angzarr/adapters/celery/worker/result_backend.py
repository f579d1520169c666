"""The result backend: what Celery stores after an outcome, and for how long a worker waits for it.

Celery's tracer stores a task's result before its message is acknowledged. A result that cannot be
stored is lost, which costs whoever asks for it; its event must not run again for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlsplit

from celery import Task
from celery.app.task import get_actual_ignore_result
from celery.backends.base import DisabledBackend

#: Of Celery's Redis result backend, in seconds; Celery waits 120, and for a connect as long as the
#: kernel does. For a mute one the tracer waits twice, to store the result and then the failure to
#: do so: 6 s, which fit into the grace of 7.5 s of what returns just when SIGTERM comes (16).
DEFAULTS: Final[Mapping[str, Any]] = {
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
_REDIS: Final = ("redis", "rediss")


def bound_retries(conf: Any) -> None:
    """Bound how long a worker sends one result, below what the user set."""
    given = conf.result_backend_transport_options or {}
    conf.result_backend_transport_options = {"retry_policy": dict(_RETRIES), **given}


def ack_follows(task: Any, request: Any) -> bool:
    """Tell whether nothing that may take long comes between an outcome and its acknowledgement.

    Where nothing is stored, or in the very Redis that the acknowledgement goes to, which is away
    for both or for none; and where no code of the task's own runs after it.
    """
    kind = type(task)
    if kind.on_success is not Task.on_success or kind.after_return is not Task.after_return:
        return False
    backend = task.backend
    if isinstance(backend, DisabledBackend):
        return True
    if get_actual_ignore_result(task, request) and not request.chord:
        return True
    return _one_server(backend.url or "", task.app.broker_url)


@lru_cache(maxsize=64)
def _one_server(url: str, other: str) -> bool:
    """Tell whether both URLs name one Redis, in whichever of its databases."""
    try:
        places = [(parts.hostname, parts.port or 6379) for parts in map(urlsplit, (url, other))]
    except ValueError:  # no port is such a number
        return False
    schemes = {url.partition(":")[0], other.partition(":")[0]}
    return schemes <= set(_REDIS) and places[0] == places[1]
