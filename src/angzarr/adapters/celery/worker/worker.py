"""The steps of a worker's parent at start and stop, and the thread that moves due messages."""

from __future__ import annotations

import logging
import mmap
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import click
from celery import bootsteps
from celery.worker import state

from angzarr.adapters.celery.celery_defaults import bound_retries
from angzarr.adapters.celery.publish.publisher import (
    SingleConnectionPublisher,
    refuses,
    refuses_for_good,
)
from angzarr.adapters.celery.worker.json_bodies import install_json_reader
from angzarr.adapters.celery.worker.pools import share_memory_with_children
from angzarr.adapters.celery.worker.runtime import runtime_of
from angzarr.delivery.async_runner import INTERRUPTER
from angzarr.delivery.schedule import DueMessages
from angzarr.delivery.schedule_mover import Mover
from angzarr.errors import ConfigurationError
from angzarr.events.event import Message
from angzarr.runtime.chance import chance
from angzarr.runtime.processes import PeriodicThread

_log = logging.getLogger("angzarr.worker")
#: What `Stopping` says besides 0.
_STOPPING, _CLOSED, _CUTTING = 1, 2, 3


class RefusedToStart(click.ClickException, ConfigurationError):
    """A ConfigurationError that ``celery worker`` prints as one sentence."""


class Stopping:
    """The stop of this worker: one byte that the parent writes and its children see.

    A warm shutdown sends a prefork child no signal; a child that holds a message must know, and
    one that gets a signal must know whether it means its handler.
    """

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, 1)

    def begin(self) -> None:
        """Let every process of this worker know."""
        self._page[0] = max(self._page[0], _STOPPING)

    def close(self) -> None:
        """Let nothing begin any more: nothing is consumed, so that nothing comes round again."""
        self._page[0] = max(self._page[0], _CLOSED)

    def closed(self) -> bool:
        """True if a delivery that has not begun goes back."""
        return self._page[0] >= _CLOSED or _told_to_stop()

    def cut(self) -> None:
        """Let them know that the grace has ended as well."""
        self._page[0] = _CUTTING

    @property
    def cutting(self) -> bool:
        """True once the grace has ended."""
        return self._page[0] == _CUTTING

    def renew(self) -> None:
        """Share it with this process's own children, and no more with its siblings."""
        self._page = mmap.mmap(-1, 1)

    def reset(self) -> None:
        """Forget an earlier worker of this process."""
        self._page[0] = 0
        INTERRUPTER.reset()

    def __call__(self) -> bool:
        """True if the worker stops.

        A solo pool holds on the main thread, where Celery's loop cannot hear of its own signal.
        """
        return self._page[0] != 0 or _told_to_stop()


def _told_to_stop() -> bool:
    stop, end = state.should_stop, state.should_terminate  # None, False, or an exit code such as 0
    return (stop is not None and stop is not False) or (end is not None and end is not False)


class StartStep(bootsteps.StartStopStep):
    """Checks the app before the pool starts, then keeps the owner lease."""

    requires = ()

    def __init__(self, worker: Any, **options: Any) -> None:
        super().__init__(worker, **options)
        install_json_reader()
        try:
            limits = (worker.time_limit, worker.soft_time_limit)
            keeps = getattr(worker.pool_cls, "keeps_limits", False)
            checked = None if keeps else limits
            runtime_of(worker.app).check_worker(pool_name(worker), checked)
            bound_retries(worker.app.conf)
        except ConfigurationError as error:
            raise RefusedToStart(str(error)) from error
        if pool_name(worker) == "prefork":
            share_memory_with_children()

    def start(self, worker: Any) -> None:
        """Take the lease; ends the worker where the store that gave it would lose messages."""
        try:
            runtime_of(worker.app).begin_work(pool_name(worker))
        except ConfigurationError as error:
            _log.critical("refused_to_start: %s", error)
            raise SystemExit(1) from error

    def stop(self, worker: Any) -> None:
        """Let children that hold a message give it back; the lease lasts until the pool ended."""
        runtime_of(worker.app).stopping.begin()
        runtime_of(worker.app).stop_settling()

    def close(self, worker: Any) -> None:
        """See `stop`; a worker closes before it waits for its pool."""
        runtime_of(worker.app).stopping.begin()


def pool_name(worker: Any) -> str:
    """Celery's short name of the pool that *worker* has."""
    if getattr(worker.pool_cls, "keeps_limits", False):
        return str(worker.pool_cls.name)
    module = str(getattr(worker.pool_cls, "__module__", worker.pool_cls))
    known = {"thread": "threads", "solo": "solo", "gevent": "gevent", "eventlet": "eventlet"}
    return known.get(module.rsplit(".", 1)[-1], "prefork")


class MoverThread(PeriodicThread):
    """Runs a `Mover`; what a stop finds taken and not published is given back."""

    def __init__(
        self,
        due: DueMessages,
        publisher: SingleConnectionPublisher,
        set_aside: Callable[[bytes, Exception], None],
        bury: Callable[[Message, Exception], object],
    ) -> None:
        def make(stopping: Callable[[], bool]) -> _Moving:
            mover = Mover(
                due=due,
                publish=publisher.publish,
                refuses=refuses,
                for_good=refuses_for_good,
                set_aside=set_aside,
                dead_letter=bury,
                chance=chance,
                stopping=stopping,
            )
            return _Moving(mover, publisher)

        super().__init__("angzarr-mover", make)


class _Moving:
    def __init__(self, mover: Mover, publisher: SingleConnectionPublisher) -> None:
        self._mover = mover
        self._publisher = publisher

    def turn(self) -> timedelta:
        return self._mover.turn()

    def leave(self) -> None:
        self._mover.leave()
        self._publisher.close()
