"""Sends one event to one handler after a template, while Celery would write the same message.

Celery finds out for each message where it goes and how, which is half of what a publish costs. Here
it does so for the first message of a handler, and again once anything that it looked at has
changed. Whatever may differ from message to message is left to Celery.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any, Final, NamedTuple

from celery import Celery, signals
from celery._state import get_current_worker_task

from angzarr.adapters.celery.publish.amqp import AngzarrAMQP
from angzarr.adapters.celery.publish.message_template import (
    MessageCapture,
    MessageTemplate,
    can_use_templates,
    json_of,
)

#: The options of a message that a template may be made for.
_OPTIONS: Final = frozenset({"args", "task_id", "headers", "queue"})
#: Who listens to these may change a message, or wants its span to be the parent of others.
_SIGNALS: Final = (signals.before_task_publish, signals.after_task_publish, signals.task_sent)
#: What sends a task, Celery's own unless a monitoring library has put its own in front.
_SEND_TASK: Final = vars(Celery)["send_task"]
_CELERYS_FILE: Final = ("celery", "app", "base.py")
_IS_CELERYS: Final = (
    type(_SEND_TASK) is FunctionType
    and Path(_SEND_TASK.__code__.co_filename).parts[-len(_CELERYS_FILE) :] == _CELERYS_FILE
)


class _Undeclared:
    """Those of *entities* that *producer*'s connection of the moment has not declared.

    kombu asks again for each try, and would bind each of them to its channel before it looks.
    """

    def __init__(self, producer: Any, entities: Sequence[Any]) -> None:
        self._producer = producer
        self._entities = entities

    def __iter__(self) -> Iterator[Any]:
        known = self._producer.connection.declared_entities
        for one in self._entities:
            if not (one.can_cache_declaration and hash(one) in known):
                yield one


class _Kept(NamedTuple):
    """A template and what Celery looked at to write it; None: it is to write each message."""

    template: MessageTemplate | None
    pid: int
    amqp: Any
    routes: Any
    queue: Any
    task: Any
    conf: Any
    layers: int
    changes: Mapping[str, Any]


class TemplateSender:
    """Sends by templates of *app*; what stands in the place of *own*, its method, is respected."""

    def __init__(self, app: Celery, own: Callable[..., Any]) -> None:
        self._app = app
        self._own = own
        self._kept: dict[tuple[str, str | None], _Kept] = {}

    def is_apps_own(self) -> bool:
        """True if nothing has taken the place of the app's ``send_task``."""
        return getattr(self._app.send_task, "__func__", None) is self._own

    def send(self, name: str, options: Mapping[str, Any]) -> bool:
        """Send, and wait for the confirm; False, and nothing sent, where Celery must do it.

        Raises what Celery's ``send_task`` raises; UnserializableEvent for what is not JSON.
        """
        if not self._applies(options):
            return False
        (data,), task_id = options["args"], options["task_id"]
        with self._app.producer_or_acquire() as producer:
            template = self._template(name, options, producer)
            if template is None:
                return False
            body = template.text(json_of(data))
            with producer.connection._reraise_as_library_errors():  # noqa: SLF001 - as Celery does
                producer.publish(
                    template.body(data) if body is None else body,
                    headers=template.headers(task_id, data, options["headers"]),
                    retry=template.retry,
                    retry_policy=dict(template.policy),
                    declare=_Undeclared(producer, template.destination.declare),
                    **template.way(as_text=body is not None),
                    **template.properties(task_id, self._app.thread_oid),
                )
        return True

    def _applies(self, options: Mapping[str, Any]) -> bool:
        return (
            options.keys() <= _OPTIONS
            and _IS_CELERYS
            and vars(Celery)["send_task"] is _SEND_TASK
            and self.is_apps_own()
            and get_current_worker_task() is None  # its root and priority are inherited
            and not any(signal.receivers for signal in _SIGNALS)
        )

    def _template(
        self, name: str, options: Mapping[str, Any], producer: Any
    ) -> MessageTemplate | None:
        key = name, options.get("queue")
        kept = self._kept.get(key)
        if kept is None or not self._is_current(name, kept):
            kept = self._kept[key] = self._make(name, options, producer)
        return kept.template

    def _is_current(self, name: str, kept: _Kept) -> bool:
        app = self._app
        conf, amqp = app.conf, app.amqp
        return (
            kept.pid == os.getpid()
            and kept.conf is conf
            and kept.layers == len(conf.maps)
            and kept.amqp is amqp
            and kept.routes is amqp.routes
            and kept.task is app._tasks.get(name)  # noqa: SLF001 - finalizes no app
            and (kept.queue is None or kept.queue is amqp.queues.get(kept.queue.name))
            and kept.changes == conf.changes
        )

    def _make(self, name: str, options: Mapping[str, Any], producer: Any) -> _Kept:
        app = self._app
        template = None
        if type(app.amqp) is AngzarrAMQP and can_use_templates(app):
            capture = MessageCapture(producer)
            app.send_task(name, **{**options, "producer": capture, "add_to_parent": False})
            made = MessageTemplate(app, capture)
            template = made if made.is_timeless else None
        queue = None if template is None else template.destination.queue
        conf, amqp = app.conf, app.amqp
        return _Kept(
            template, os.getpid(), amqp, amqp.routes, queue, app._tasks.get(name), conf,  # noqa: SLF001
            len(conf.maps), dict(conf.changes),
        )  # fmt: skip
