"""RoadRequest: a delivery as the parent process sees it. It gives each delivery its token (3)."""

from __future__ import annotations

import logging
import os
from functools import partial
from typing import Any

from celery.worker import state
from celery.worker.request import Request

from angzarr.adapters.celery.envelope import FIELD, Envelope
from angzarr.adapters.celery.riding import RIDE, LeftToAck, Ride, answer_in, sent_as
from angzarr.resilience.idempotency import Claimed

_log = logging.getLogger("angzarr.worker")


class RoadRequest(Request):
    """Celery's request plus the raw message, a token, and the owner whose lease covers it."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Wrap the `on_success` that Celery writes into the class it makes for each task."""
        super().__init_subclass__(**options)
        acknowledge_success = cls.on_success

        def on_success(request: Any, told: Any, **kwargs: Any) -> Any:
            if type(told[1]) is LeftToAck:
                request.leave_to_ack(told[1].kept)
            return acknowledge_success(request, told, **kwargs)

        cls.on_success = on_success

    def on_failure(self, exc_info: Any, *args: Any, return_ok: bool = False) -> None:
        """Free the claim of a child that died before its message is given back (decisions 3)."""
        if not return_ok:  # what a child returned it has settled itself
            self._free_claim()
        super().on_failure(exc_info, *args, return_ok=return_ok)

    def on_timeout(self, soft: bool, timeout: float) -> None:  # noqa: FBT001 - Celery's signature
        """Free the claim of a child that is about to be killed."""
        if not soft:
            self._free_claim()
        super().on_timeout(soft, timeout)

    def leave_to_ack(self, kept: str | None) -> None:
        """Let the acknowledgement of this message end the claim; *kept* is for duplicates."""
        # Not of the request: it holds its message, which is to hold this.
        note = partial(_note_fenced, self._app, self._request_dict[FIELD])
        self._app.riding.leave(self._message, self._ride, kept, note)

    def _announce_revoked(self, *why: Any) -> None:
        """Free a claim made with the fetch: the run that it was for will not be."""
        if self._ride is not None:
            self._free_claim()
        super()._announce_revoked(*why)

    def _free_claim(self) -> None:
        envelope = Envelope._make(self._request_dict[FIELD])
        # A child that we ended ourselves (connection lost, cold shutdown) is no poison (16).
        ended_by_us = self._already_cancelled or state.should_terminate
        try:
            rode = isinstance(answer_in(envelope.answer), Claimed)
            self._app.free_claim(
                envelope.message(""), envelope.token, counted=not ended_by_us, was_counted=not rode
            )
        except Exception:  # noqa: BLE001 - the message must go back whatever breaks here
            _log.exception("claim_not_freed of task %s", self.id)

    def __init__(self, message: Any, **options: Any) -> None:
        super().__init__(message, **options)
        request = self._request_dict
        self._ride: Ride | None = getattr(message, RIDE, None)
        # A bare tuple: pickle spells out the name of any other class in each message. What stands
        # in the request too (body, properties, delivery_info) costs a reference.
        request[FIELD] = (
            self._ride.token if self._ride else os.urandom(16).hex(),
            self._app.owner,
            message.body if self._decoded else self._body,
            message.content_type,
            message.content_encoding,
            message.headers,
            request["properties"],
            self._delivery_info,
            self._ride and sent_as(self._ride.answer),
        )
        self._hand_on_decoded()

    def _hand_on_decoded(self) -> None:
        """Let who runs the task have the body as it was decoded here, so that it is not read twice.

        Celery sends its text along and has it decoded again, beside the arguments in the request.
        """
        if not self._decoded:
            self._body, self._content_type, self._content_encoding = self._payload, None, None


def _note_fenced(app: Any, sent: Any) -> None:
    envelope = Envelope._make(sent)
    app.note_fenced(envelope.message(""), envelope.token)
