"""Refuses Celery settings under which messages could be lost.

The rules come from the measured facts in docs/guarantees.md; a test pins each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from celery import Celery
from kombu.utils.imports import symbol_by_name

from angzarr.adapters.celery.celery_defaults import (
    CONSUMER,
    DEFAULTS,
    is_given,
    with_transport_defaults,
)
from angzarr.adapters.celery.publish.publisher import transport_of
from angzarr.adapters.celery.worker.runtime import is_ours
from angzarr.adapters.celery.worker.task_classes import off_road
from angzarr.doctor.finding import Unsafe
from angzarr.errors import UnsafeSetting

_JSON = {"json", "application/json"}
#: Delivery modes, of Celery's settings and of AMQP, under which RabbitMQ writes messages to disk.
_PERSISTENT: Final = (2, "persistent")
#: Of what type the queues are between which RabbitMQ hands a delayed message on.
_DELAYS: Final = "broker_native_delayed_delivery_queue_type"


def check(app: Celery, transport: str) -> None:
    """Raise UnsafeSetting, naming every setting that would lose messages and its cure."""
    problems = list(map(str, unsafe(app, transport)))
    if problems:
        msg = "angzarr refuses to start, messages would be lost: " + "; ".join(problems)
        raise UnsafeSetting(msg)


def unsafe(app: Celery, transport: str) -> Iterator[Unsafe]:
    """Every setting and task option that would lose messages; of any Celery app.

    It reports a name that another one overrides (`task_acks_on_failure_or_timeout`), too.
    """
    yield from _settings(app, transport)
    yield from _tasks(app, transport)
    if is_ours(app):
        yield from _off_road(app)


def _settings(app: Celery, transport: str) -> Iterator[Unsafe]:
    conf = app.conf
    wanted: dict[str, Callable[[Any], bool]] = {
        "task_acks_late": bool,
        "task_reject_on_worker_lost": bool,
        "task_acks_on_failure": bool,
        "task_acks_on_timeout": lambda value: not value,
    }
    for name, is_safe in wanted.items():
        if not is_safe(value := in_force(conf, name)):
            yield Unsafe(name, f"{name} is {value!r}", f"set it to {DEFAULTS[name]!r}")
    yield from _serializers(conf)
    if transport == "amqp":
        yield from _amqp(app)
    if transport in ("kafka", "confluentkafka"):
        cure = "use Redis, RabbitMQ or SQS for tasks"
        yield Unsafe("broker_url", "a Kafka broker commits whole partitions", cure)
    if not _is_ours(conf.worker_consumer):
        problem = f"worker_consumer is {conf.worker_consumer!r}"
        yield Unsafe("worker_consumer", problem, f"derive it from {CONSUMER!r}")
    if conf.task_always_eager:
        cure = "it is for tests, a worker never sees a task"
        yield Unsafe("task_always_eager", "task_always_eager is on", cure)


def _serializers(conf: Any) -> Iterator[Unsafe]:
    for name in ("task_serializer", "result_serializer"):
        if conf[name] != "json":
            cure = "set it to 'json', others can be made to run code"
            yield Unsafe(name, f"{name} is {conf[name]!r}", cure)
    for name in ("accept_content", "result_accept_content"):
        if extra := set(conf[name] or ()) - _JSON:
            takes = f"{name} takes {', '.join(sorted(extra))}"
            yield Unsafe(name, takes, "set it to ['json']")


def in_force(conf: Any, name: str) -> Any:
    """A setting, or Celery's own default where it is not set."""
    both = "task_acks_on_failure_or_timeout"
    value = conf[name]
    if name not in ("task_acks_on_failure", "task_acks_on_timeout"):
        return value
    by_default = value is None or (not is_given(conf, name) and is_given(conf, both))
    return conf[both] if by_default else value


def _amqp(app: Celery) -> Iterator[Unsafe]:
    conf = app.conf
    options = conf.broker_transport_options or {}
    if is_ours(app):
        options = with_transport_defaults("amqp://", options)
    if not options.get("confirm_publish"):
        yield Unsafe(
            "broker_transport_options",
            "broker_transport_options lacks confirm_publish",
            "set {'confirm_publish': True}",
        )
    if (mode := conf.task_default_delivery_mode) not in _PERSISTENT:
        problem = f"task_default_delivery_mode is {mode!r}"
        yield Unsafe("task_default_delivery_mode", problem, "set it to 'persistent'")
    if (kind := conf[_DELAYS]) != "quorum":
        # kombu gives quorum queues alone a dead-lettering that waits for the next level's confirm.
        problem = f"{_DELAYS} is {kind!r}, a delay could vanish on its way"
        yield Unsafe(_DELAYS, problem, "set it to 'quorum'")


def _is_ours(consumer: Any) -> bool:
    ours = symbol_by_name(CONSUMER)
    return bool(issubclass(symbol_by_name(consumer), ours))


def _tasks(app: Celery, transport: str) -> Iterator[Unsafe]:
    for name, task in sorted(app.tasks.items()):
        if name.startswith("celery."):
            continue
        for option in ("acks_late", "reject_on_worker_lost"):
            if not getattr(task, option):
                yield Unsafe(option, f"task {name} has {option}=False", "remove it", task=name)
        mode = getattr(task, "delivery_mode", None)
        if transport == "amqp" and mode is not None and mode not in _PERSISTENT:
            problem = f"task {name} has delivery_mode={mode!r}"
            yield Unsafe("delivery_mode", problem, "remove it", task=name)


def _off_road(app: Celery) -> Iterator[Unsafe]:
    for name, task in sorted(app.tasks.items()):
        for why, cure in off_road(app, name, task):
            yield Unsafe("road", f"task {name} {why}", cure, task=name)


POOLS_WITHOUT_TIME_LIMITS: Final = frozenset({"threads", "solo", "gevent", "eventlet"})


def check_pool(
    app: Celery,
    pool: str,
    asynchronous: Callable[[Any], bool],
    limits: Sequence[float | None] | None = (),
    undos: Sequence[str] = (),
) -> None:
    """Refuse what a pool would ignore in silence: time limits in threads, coroutines in gevent.

    *limits* are the worker's own, for all tasks: by its command line, or else by the settings.
    None says that this pool keeps time limits, as those of `angzarr worker` do.
    *undos* are the names of undo functions that are async.
    """
    problems = [*_in_one_process(app, pool), *_ignored(app, pool, asynchronous, limits)]
    if pool in ("gevent", "eventlet"):
        problems += [f"undo {name} is async, which the {pool} pool cannot run" for name in undos]
    if problems:
        msg = "angzarr refuses to start: " + "; ".join(problems)
        raise UnsafeSetting(msg)


def _in_one_process(app: Celery, pool: str) -> Iterator[str]:
    if pool == "prefork" and transport_of(app) == "memory":
        yield "a memory broker lives in one process: use the threads or solo pool"


def _ignored(
    app: Celery,
    pool: str,
    asynchronous: Callable[[Any], bool],
    limits: Sequence[float | None] | None,
) -> Iterator[str]:
    unlimited = pool in POOLS_WITHOUT_TIME_LIMITS and limits is not None
    cure = f"which the {pool} pool ignores: use `angzarr worker` or prefork, or remove the limit"
    settings = (app.conf.task_time_limit, app.conf.task_soft_time_limit)
    if unlimited and any((*(limits or ()), *settings)):
        yield (
            "all tasks have a time limit (--time-limit, --soft-time-limit, task_time_limit or"
            f" task_soft_time_limit), {cure}"
        )
    for name, task in sorted(app.tasks.items()):
        if name.startswith("celery."):
            continue
        if unlimited and any((task.time_limit, task.soft_time_limit)):
            yield f"task {name} has a time limit, {cure}"
        if pool in ("gevent", "eventlet") and asynchronous(task):
            yield f"task {name} is async, which the {pool} pool cannot run: use prefork or threads"
