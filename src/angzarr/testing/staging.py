"""Puts a user's app on servers of this process, with overlaid settings, and takes it back."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

from kombu import pools
from kombu.utils.collections import eqhash
from pydantic import BaseModel, TypeAdapter, ValidationError

from angzarr.adapters.celery.memory_transport import forget_broker
from angzarr.adapters.memory import dead_letters, facts
from angzarr.app.angzarr import Angzarr
from angzarr.clock import Clock, standing_in
from angzarr.errors import ConfigurationError
from angzarr.runtime.processes import OncePerProcess
from angzarr.runtime.text import unknown
from angzarr.settings.dead_letters import SpoolSettings
from angzarr.settings.payloads import MessagePayloadSettings, PayloadSettings
from angzarr.settings.settings import Settings
from angzarr.wiring.dead_letters import channel_of

#: Where everything is that a test must not share; kept apart from what users may say.
_MEMORY: Final = "memory://"


def embedded(settings: Settings, broker: str, ledger: str) -> Settings:
    """The given *settings* with every server in this process; how things are done stays."""
    dlq = {
        "backend": "channel",
        "targets": None,
        "spool": SpoolSettings(),
        "payloads": PayloadSettings(),
    }
    return settings.model_copy(
        update={
            "store": _MEMORY,
            "payloads": MessagePayloadSettings(),
            "books": _MEMORY,
            "ledger": ledger,
            "dlq": settings.dlq.model_copy(update=dlq),
            "facts": settings.facts.model_copy(update={"url": broker, "log": False}),
            "flow": settings.flow.model_copy(update={"store": None}),
            "configuration": settings.configuration.model_copy(update={"url": _MEMORY}),
            "ordering": settings.ordering.model_copy(update={"url": _MEMORY}),
            "analysis": settings.analysis.model_copy(
                update={"alerts": settings.analysis.alerts.model_copy(update={"enabled": False})}
            ),
            "saga_compensation": settings.saga_compensation.model_copy(
                update={"dead_letter_queue_url": None, "escalation_webhook_url": None}
            ),
        }
    )


def overlaid(settings: Settings, given: Mapping[str, Any]) -> Settings:
    """The given *settings* with *given* over them; raises ConfigurationError naming the key."""
    update = {}
    for name, value in given.items():
        if name not in Settings.model_fields:
            raise ConfigurationError(unknown("setting", name, Settings.model_fields, "remove it"))
        try:
            update[name] = _checked(getattr(settings, name), name, value)
        except ValidationError as error:
            problems = error.errors(include_url=False, include_input=False)
            told = "; ".join(f"{_key(name, one['loc'])}: {one['msg']}" for one in problems)
            raise ConfigurationError(told) from None
    return settings.model_copy(update=update)


def _checked(before: Any, name: str, value: Any) -> Any:
    if isinstance(before, BaseModel) and isinstance(value, Mapping):
        return type(before).model_validate(_merged(before.model_dump(), value))
    field = Settings.model_fields[name]
    checks: Any = (field.annotation, *field.metadata)
    whole: Any = Annotated[checks] if field.metadata else field.annotation
    return TypeAdapter(whole).validate_python(value)


def _merged(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        if isinstance(value, Mapping) and isinstance(under, dict):
            merged[key] = _merged(under, value)
        else:
            merged[key] = value
    return merged


def _key(name: str, place: tuple[int | str, ...]) -> str:
    return ".".join([name, *map(str, place)])


#: Variables by which Celery would find another broker than the one that it is told.
_BROKERS: Final = ("CELERY_BROKER_URL", "CELERY_BROKER_READ_URL", "CELERY_BROKER_WRITE_URL")
#: What Celery makes once of an app's configuration.
_MADE: Final = ("amqp", "control", "events")
#: What an app makes once of its settings, or of its broker.
_CACHED: Final = ("owner", "claim_batch")
_STAGED: set[int] = set()


@contextmanager
def staged(
    app: Angzarr,
    folder: Path,
    clock: Clock,
    *,
    settings: Mapping[str, Any] | None = None,
    chance: Callable[[], float],
) -> Iterator[str]:
    """Let *app* be on servers of this process alone; give the URL of its broker.

    Raises ConfigurationError for *settings* that are none, and for an app that is staged already.
    """
    if id(app) in _STAGED:
        msg = f"the app {app.main!r} is on the stage of another fixture already: use that one"
        raise ConfigurationError(msg)
    broker = f"memory://angzarr-test-{uuid.uuid4().hex[:12]}"
    chosen = embedded(app.settings, broker, f"sqlite:///{folder / 'ledger.db'}")
    chosen = overlaid(chosen, settings or {})
    with ExitStack() as doors:
        _STAGED.add(id(app))
        doors.callback(_STAGED.discard, id(app))
        doors.callback(_forget, broker)
        doors.enter_context(standing_in(clock))
        doors.enter_context(_without_environment())
        doors.enter_context(_configured(app, broker))
        doors.enter_context(_own_parts(app, settings=chosen, chance=chance))
        yield broker


@contextmanager
def _without_environment() -> Iterator[None]:
    kept = {name: os.environ.pop(name) for name in _BROKERS if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)


@contextmanager
def _configured(app: Angzarr, broker: str) -> Iterator[None]:
    """Put Celery's part of *app* on *broker*, and back."""
    conf = app.conf
    _ = conf.broker_url  # what was lazy is read now
    changes = dict(conf.changes)
    made: dict[str, Any] = {name: app.__dict__.pop(name) for name in _MADE if name in app.__dict__}
    pool, app._pool = app._pool, None  # noqa: SLF001 - Celery's own attribute
    backend = _swap_backend(app, None)
    conf.update(
        broker_url=broker,
        broker_read_url=None,
        broker_write_url=None,
        broker_transport=None,
        broker_use_ssl=None,
        broker_transport_options={"polling_interval": 0.01},
        result_backend="cache+memory://" if conf.result_backend else None,
        task_always_eager=False,
        worker_soft_shutdown_timeout=0.0,
        worker_disable_rate_limits=True,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
    )
    try:
        yield
    finally:
        _close_pools(app)
        conf.changes.clear()
        conf.changes.update(changes)
        for name in _MADE:
            app.__dict__.pop(name, None)
        app.__dict__.update(made)
        app._pool = pool  # noqa: SLF001
        _swap_backend(app, backend)


def _swap_backend(app: Angzarr, backend: Any) -> Any:
    before = app._backend_cache, getattr(app._local, "backend", None)  # noqa: SLF001
    app._backend_cache, app._local.backend = backend or (None, None)  # noqa: SLF001
    return before


def _close_pools(app: Angzarr) -> None:
    """Close the connections to the broker of this stage; kombu would keep them for ever."""
    mine = eqhash(app.connection_for_write())
    for group in (pools.producers, pools.connections):
        pool = group.pop(mine, None)
        if pool is not None:
            pool.force_close_all()


@contextmanager
def _own_parts(app: Angzarr, **given: Any) -> Iterator[None]:
    """Give *app* another context, and connections of its own, until the block is left.

    What makes a connection stays the object that it is: handlers that were registered hold it.
    """
    parts, worker, context = app._parts, app._runtime, app._context  # noqa: SLF001 - the stage
    attributes = {name: vars(app).get(name) for name in ("now", "use_fast_trace_task")}
    before = {name: getattr(context, name) for name in (*given, "hooks")}
    own = (*_CACHED, "turns_by_hand")
    made = {name: vars(worker).pop(name) for name in own if name in vars(worker)}
    with ExitStack() as aside:
        for one in vars(parts).values():
            if isinstance(one, OncePerProcess):
                aside.enter_context(one.set_aside())
        context.substitute(**given)
        app.use_fast_trace_task = False
        try:
            yield
        finally:
            worker.end_work()
            context.substitute(**before)
            for name in own:
                vars(worker).pop(name, None)
            vars(worker).update(made)
            for name, value in attributes.items():
                app.__dict__.pop(name, None)
                if value is not None:
                    app.__dict__[name] = value


def _forget(broker: str) -> None:
    name = channel_of(broker)
    forget_broker(name)
    dead_letters.forget_channel(name)
    facts.forget(broker)
