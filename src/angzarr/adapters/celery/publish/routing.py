"""Which queue Celery sends a task to, and which queue a message came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from celery import Celery

from angzarr.delivery.handlers import Handler, Handlers, Subscription


class Routes(Protocol):
    """The parts of the app that routing needs."""

    @property
    def handlers(self) -> Handlers:
        """The handlers of the app."""

    @property
    def routes(self) -> Mapping[str, Sequence[Subscription]]:
        """Handlers that this process need not import, by event type or domain."""


class CeleryRouting:
    """The queues of *app*, whose handlers are those of *known*."""

    def __init__(self, app: Celery, known: Routes) -> None:
        self._app = app
        self._known = known

    def load_tasks(self) -> None:
        """Import what a worker would import (``include``, ``imports``), so that all is known."""
        self._app.loader.import_default_modules()
        self._app.finalize(auto=True)

    def queue_for(self, task: str) -> str:
        """The queue to which *task*, which may be unknown here, would be sent."""
        handler = self._known.handlers.get(task)
        return self._routed(task) if handler is None else self.home_of(handler)

    def home_of(self, handler: Handler) -> str:
        """The queue to which a publisher would send the messages of *handler*."""
        return handler.queue or self._routed(handler.name)

    def _routed(self, task: str) -> str:
        routed = self._app.amqp.router.route({}, task)["queue"]
        return str(getattr(routed, "name", routed))

    def queue_of(self, routing_key: str) -> str:
        """The queue that *routing_key* reaches, the key itself where none is known."""
        for name, queue in self._app.amqp.queues.items():
            if routing_key in (name, queue.routing_key):
                return str(name)
        return routing_key or str(self._app.conf.task_default_queue)

    def named_queues(self) -> set[str]:
        """The queues that handlers and routes name."""
        return set(self._named())

    def _named(self) -> Iterator[str]:
        for handler in self._known.handlers:
            if handler.queue:
                yield handler.queue
        for subscriptions in self._known.routes.values():
            yield from (one.queue for one in subscriptions if one.queue)

    def queues(self) -> frozenset[str]:
        """All queues that Celery, handlers or routes know."""
        return frozenset({*self._app.amqp.queues, *self.named_queues()})
