"""Trial: a signed test alert to webhooks, to see whether alerts would arrive."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from angzarr.analysis.alerts.alert import Alert
from angzarr.analysis.alerts.alert_delivery import Sink
from angzarr.analysis.alerts.alert_text import trial_alert
from angzarr.clock import Clock
from angzarr.errors import ConfigurationError
from angzarr.runtime.text import printable
from angzarr.webhooks import Answer


def chosen(sinks: Mapping[str, Sink], name: str | None) -> dict[str, Sink]:
    """Return the sink called *name*, or all of them; ValueError: there is none of that name.

    Raises ConfigurationError where there are no sinks at all.
    """
    if not sinks:
        msg = (
            "this app has no webhooks: add one to analysis.alerts.webhooks, e.g."
            " ops: {url: https://…, secrets: [whsec_…]}"
        )
        raise ConfigurationError(msg)
    if name is not None and name not in sinks:
        msg = f"there is no webhook {printable(name)!r}; known are: {', '.join(sorted(sinks))}"
        raise ValueError(msg)
    return {known: sink for known, sink in sinks.items() if name in {None, known}}


def try_alert(sinks: Mapping[str, Sink], clock: Clock) -> tuple[Alert, dict[str, Answer]]:
    """Send one test alert to each of *sinks* and close it; return what came back, by name."""
    alert = trial_alert(clock.now(), uuid.uuid4().hex)
    return alert, {name: _try(sink, alert) for name, sink in sinks.items()}


def _try(sink: Sink, alert: Alert) -> Answer:
    try:
        return sink.send(alert)
    finally:
        sink.close()
