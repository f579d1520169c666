"""The keyword options that Celery knows. Celery itself accepts any keyword without a word."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from celery import Celery
from celery.app.defaults import _OLD_SETTING_KEYS, SETTING_KEYS
from kombu import Exchange, Producer, Queue
from kombu.compression import get_encoder

from angzarr.errors import ConfigurationError
from angzarr.runtime.text import unknown


def _named(function: Callable[..., Any]) -> frozenset[str]:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(function).parameters.values()
    return frozenset(one.name for one in parameters if one.kind in kinds) - {"self"}


#: Settings of Celery, under their names of today and those before version 4.
_SETTINGS: Final = frozenset(SETTING_KEYS) | frozenset(_OLD_SETTING_KEYS)
#: Arguments of an app that are Celery's.
APP: Final = (_named(Celery.__init__) - {"kwargs"}) | _SETTINGS

#: Attributes of a task class that a decorator sets.
_ATTRIBUTES: Final = frozenset(
    {
        "Request", "Strategy", "abstract", "acks_late", "acks_on_failure",
        "acks_on_failure_or_timeout", "acks_on_timeout", "after_return", "backend",
        "before_start", "default_retry_delay", "expires", "ignore_result", "max_retries",
        "on_bound", "on_failure", "on_replace", "on_retry", "on_success", "priority",
        "rate_limit", "reject_on_worker_lost", "resultrepr_maxsize", "retry_on_worker_lost",
        "send_events", "serializer", "shadow_name", "soft_time_limit",
        "store_errors_even_if_ignored", "throws", "time_limit", "track_started", "trail", "typing",
    }
)  # fmt: skip
#: Besides: of the decorator, of `autoretry_for`, and of the messages that a task is sent by.
_DECORATOR: Final = frozenset(
    {
        "base", "bind", "filter", "lazy", "name", "pydantic", "pydantic_context",
        "pydantic_dump_kwargs", "pydantic_strict", "shared",
        "autoretry_for", "dont_autoretry_for", "override_max_retries", "retry_backoff",
        "retry_backoff_max", "retry_jitter", "retry_kwargs",
        "compression", "delivery_mode", "exchange", "immediate", "mandatory", "queue",
        "routing_key",
    }
)  # fmt: skip
#: Options of ours that a plain task takes.
_OURS: Final = frozenset(
    {
        "breaker", "compensation", "domain", "fallback", "idempotent", "limit", "operation",
        "policy",
    }
)  # fmt: skip
TASK: Final = _ATTRIBUTES | _DECORATOR
PLAIN_TASK: Final = TASK | _OURS

#: What a publish sets itself.
_SET_HERE: Final = {
    "task_id": "angzarr derives it from the event's id and its handler; pass id=…",
    "headers": "they hold the event's own fields; put yours into its data",
    "args": "the event itself is the argument",
    "kwargs": "the event itself is the argument",
}
#: What goes with each message to the broker, AMQP's properties and those of SQS among it.
_MESSAGE: Final = frozenset(
    {
        "queue", "exchange_type", "ignore_result", "stamped_headers", "app_id", "cluster_id",
        "message_id", "timestamp", "user_id", "MessageGroupId", "MessageDeduplicationId",
        "MessageAttributes", "DelaySeconds", "properties",
    }
)  # fmt: skip
SEND: Final = (
    (_named(Celery.send_task) | _named(Producer.publish) | _MESSAGE)
    - {"name", "body", "options"}
    - _SET_HERE.keys()
)
_NUMBERS: Final = ("countdown", "time_limit", "soft_time_limit")
#: Seconds that a date can be away from now; a hundred years.
_FARTHEST: Final = 100 * 366 * 86_400
#: Celery's own end in the past.
_LONGEST_AGO: Final = 2**31


def check_app_options(given: Iterable[str], ours: Iterable[str], namespace: str | None) -> None:
    """Refuse arguments that neither Celery nor we know; raises ConfigurationError."""
    prefix = f"{namespace.rstrip('_')}_" if namespace else None
    for name in given:
        if name in APP:
            continue
        if prefix and name.startswith(prefix) and name.removeprefix(prefix).lower() in _SETTINGS:
            continue
        cure = "remove it, or put a value of your own into app.conf"
        raise ConfigurationError(unknown("setting", name, {*APP, *ours}, cure))


def check_task_options(
    given: Iterable[str], base: Callable[[], Any], known: frozenset[str] = PLAIN_TASK
) -> None:
    """Refuse options of a task that neither Celery, we nor its *base* class know.

    Raises ConfigurationError. *known* are those that may be said, and be meant.
    """
    for name in given:
        if name in known or (not name.startswith("_") and hasattr(base(), name)):
            continue
        cure = "remove it, or give it a default in the task's base class or as app.Task." + name
        raise ConfigurationError(unknown("option", name, known, cure))


def check_send_options(given: Mapping[str, Any], ours: Iterable[str]) -> None:
    """Refuse options of a publish that nothing takes, or that no message can be sent with."""
    stamps = given.get("stamped_headers") or ()
    for name, value in given.items():
        if name in stamps:
            continue
        if name in _SET_HERE:
            msg = f"publish does not take {name}: {_SET_HERE[name]}"
            raise ConfigurationError(msg)
        if name not in SEND:
            raise ConfigurationError(unknown("option", name, {*SEND, *ours}, "remove it"))
        if value is not None and (why := _unfit(name, value)):
            msg = f"{name} must be {why}; got {value!r:.50} ({type(value).__name__})"
            raise ConfigurationError(msg)


def _unfit(name: str, value: Any) -> str:
    """The kind of value that the option *name* needs, or an empty string where *value* fits."""
    if name in _NUMBERS:
        return "" if _is_number(value) else "a number of seconds"
    if name in ("eta", "expires"):
        fits = _is_time(value) or (name == "expires" and _is_number(value))
        return (
            "" if fits else "a datetime" + (" or a number of seconds" if name == "expires" else "")
        )
    if name in ("queue", "exchange", "routing_key"):
        return "" if isinstance(value, str | Queue | Exchange) else "a name"
    if name == "serializer":
        return "" if value == "json" else "'json', as events are JSON"
    return "" if name != "compression" or _is_compression(value) else "a compression of kombu"


def _is_number(value: Any) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return -_LONGEST_AGO <= value <= _FARTHEST  # and no NaN


def _is_time(value: Any) -> bool:
    if isinstance(value, datetime):
        return True
    try:
        datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return False
    return True


def _is_compression(value: Any) -> bool:
    try:
        get_encoder(value)
    except (KeyError, TypeError):
        return False
    return True
