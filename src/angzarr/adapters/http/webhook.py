"""Webhook: posts alerts to one address, signed."""

from __future__ import annotations

from typing import Any

from angzarr.adapters.http.poster import Poster
from angzarr.analysis.alerts.alert import Alert, BodyFormat
from angzarr.analysis.alerts.alert_json import body_of
from angzarr.webhooks import Answer


class Webhook:
    """Fulfils `Sink`; *options* are those of its `Poster`."""

    def __init__(
        self, name: str, url: str, *, form: BodyFormat = BodyFormat.GENERIC, **options: Any
    ) -> None:
        self.name = name
        self._form = form
        self._poster = Poster(url, **options)

    @property
    def place(self) -> str:
        """Scheme, host and port; path and query of an address are often its secret."""
        return self._poster.place

    def send(self, alert: Alert) -> Answer:
        """Post *alert* once."""
        try:
            body = body_of(alert, self._form)
        except Exception as error:  # noqa: BLE001 - one odd alert must not hold up the others
            return Answer(problem=f"{type(error).__name__} while writing it", ill=True)
        return self._poster.post(alert.id, body)

    def close(self) -> None:
        """Close the connections."""
        self._poster.close()
