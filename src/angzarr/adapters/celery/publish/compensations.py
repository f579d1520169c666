"""Sends the task that undoes a handler's work, which only the analysis asks for."""

from __future__ import annotations

from celery import Celery

from angzarr.adapters.celery.publish.sealed_sends import sealing_by
from angzarr.analysis.replay.compensation import Call, Compensations
from angzarr.delivery.handlers import Handlers
from angzarr.events.headers import OwnHeaders


class CeleryCompensations(Compensations):
    """The compensations that the handlers of *app* name."""

    def __init__(self, app: Celery, handlers: Handlers) -> None:
        self._app = app
        self._handlers = handlers

    def of(self, handler: str) -> str:
        """The task that undoes what *handler* does."""
        return self._handlers.compensation_of(handler)

    def send(self, call: Call) -> None:
        """Publish *call*, confirmed; it goes where the app routes its task.

        Raises PayloadKeyMissing, and sends nothing, where it is to be encrypted and cannot be.
        """
        with sealing_by(self._app, call.origin):
            self._app.send_task(
                call.task,
                args=call.args,
                kwargs=dict(call.kwargs),
                task_id=call.task_id,
                headers=OwnHeaders(call.headers),
            )
