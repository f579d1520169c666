"""RoadRequest: a delivery as the parent process sees it. It gives each delivery its token (3)."""

from __future__ import annotations

import logging
import os
from typing import Any

from celery.worker import state
from celery.worker.request import Request

from angzarr.adapters.celery.envelope import FIELD, Envelope

_log = logging.getLogger("angzarr.worker")


class RoadRequest(Request):
    """Celery's request plus the raw message, a token, and the owner whose lease covers it."""

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

    def _free_claim(self) -> None:
        envelope: Envelope = self._request_dict[FIELD]
        # A child that we ended ourselves (connection lost, cold shutdown) is no poison (16).
        ended_by_us = self._already_cancelled or state.should_terminate
        try:
            self._app.free_claim(envelope.message(""), envelope.token, counted=not ended_by_us)
        except Exception:  # noqa: BLE001 - the message must go back whatever breaks here
            _log.exception("claim_not_freed of task %s", self.id)

    def __init__(self, message: Any, **options: Any) -> None:
        super().__init__(message, **options)
        delivery_info = message.delivery_info or {}
        self._request_dict[FIELD] = Envelope(
            os.urandom(16).hex(),
            self._app.owner,
            self._body if not self._decoded else message.body,
            message.content_type,
            message.content_encoding,
            message.headers,
            message.properties or {},
            {name: delivery_info.get(name) for name in ("exchange", "routing_key")},
        )
