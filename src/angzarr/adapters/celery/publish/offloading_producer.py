"""OffloadingProducer: the producer of an app that has a payload store, or keys for its bodies.

Every message of a task passes it. What is too large is stored before it is sent, and what is to be
encrypted is before it is stored or sent. `SealedTaskSent` keeps Celery's event from telling it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kombu import Producer

from angzarr.adapters.celery.publish.body_offloader import BodyOffloader, check_sealed
from angzarr.adapters.celery.publish.sealed_sends import sealing_origin
from angzarr.delivery.sealed_origin import SealedOrigin, origin_in
from angzarr.payloads.body_sealer import IN_EVENT, hide
from angzarr.payloads.claim_check import HEADER

_JSON: Final = "application/json"


class OffloadingProducer(Producer):
    """kombu's producer, but that large bodies of tasks are stored before they are sent."""

    def __init__(self, *args: Any, offloader: BodyOffloader, **options: Any) -> None:
        self._offloader = offloader
        super().__init__(*args, **options)

    @property
    def seals_all(self) -> bool:
        """True if no body of a task is sent as it is."""
        return self._offloader.seals_all or self._origin() is not None

    def _origin(self) -> SealedOrigin | None:
        """What a message is made of that is sent here; an app without keys has opened nothing."""
        return None if self._offloader.sealer is None else sealing_origin()

    def _prepare(  # noqa: PLR0917 - kombu's signature
        self,
        body: Any,
        serializer: Any = None,
        content_type: Any = None,
        content_encoding: Any = None,
        compression: Any = None,
        headers: Any = None,
    ) -> Any:
        """Serialize, and store what is too large even if it is compressed; seal what is to be."""
        given = (body, serializer, content_type, content_encoding)
        prepared = super()._prepare(*given, compression, headers)
        origin = self._origin()
        if headers and HEADER in headers:
            self._offloader.hold_replay(headers)
        if self._offloader.leaves(len(prepared[0]), origin):
            return prepared
        # The store packs by itself.
        whole = super()._prepare(*given, None, {}) if compression else prepared
        raw = whole[0].encode() if isinstance(whole[0], str) else bytes(whole[0])
        sent = self._offloader.offloaded(raw, whole[1], headers, origin)
        if sent is raw:
            if self.seals_all and not isinstance(body, str | bytes):
                check_sealed(headers, whole[1])
            return prepared
        headers.pop("compression", None)
        return sent, _JSON, "utf-8"

    def prepared(self, body: Any, options: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
        """*body* and *options* for a plain producer; a body that is too large is stored.

        For batches, of which nothing is sent before all bodies are stored.
        """
        is_text = isinstance(body, str) and body.isascii() and HEADER not in options["headers"]
        if is_text and self._offloader.leaves(len(body), self._origin()):
            return body, options
        left = dict(options)
        headers = left["headers"]
        compression = left.pop("compression", None)
        given = (left.pop("serializer", None), left.get("content_type"))
        made, content_type, encoding = self._prepare(
            body, *given, left.get("content_encoding"), compression, headers
        )
        return made, {**left, "content_type": content_type, "content_encoding": encoding}


class SealedTaskSent:
    """Sends Celery's ``task-sent`` event of one message by *dispatcher*, once that is sent.

    Only then its *headers* say whether its body was encrypted: then the event shows no arguments.
    """

    def __init__(self, dispatcher: Any, headers: Mapping[str, Any]) -> None:
        self._dispatcher = dispatcher
        self._headers = headers

    def publish(self, kind: str, fields: dict[str, Any], *args: Any, **options: Any) -> Any:
        """Send the event *kind* with *fields*."""
        if origin_in(self._headers) is not None:
            hide(fields, IN_EVENT)
        return self._dispatcher.publish(kind, fields, *args, **options)
