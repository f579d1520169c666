"""RoadRequest: a delivery as the parent process sees it. It gives each delivery its token (3)."""

from __future__ import annotations

import uuid
from typing import Any

from celery.worker.request import Request

from angzarr.adapters.celery.envelope import FIELD, Envelope


class RoadRequest(Request):
    """Celery's request plus the raw message, a token, and the owner whose lease covers it."""

    def __init__(self, message: Any, **options: Any) -> None:
        super().__init__(message, **options)
        delivery_info = message.delivery_info or {}
        self._request_dict[FIELD] = Envelope(
            uuid.uuid4().hex,
            self._app.owner,
            self._body if not self._decoded else message.body,
            message.content_type,
            message.content_encoding,
            message.headers,
            message.properties or {},
            {name: delivery_info.get(name) for name in ("exchange", "routing_key")},
        )
