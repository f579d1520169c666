"""Escalating: people are told that a saga's step could not be undone (spec C5, C7).

Whoever escalates writes a line and publishes an event; it never waits for the webhook.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, Final

from angzarr.app.dlq_rules import Ruling
from angzarr.app.registry import Registering
from angzarr.dead_letters.masking import Words, compiled, masked
from angzarr.errors import ConfigurationError
from angzarr.runtime.processes import OncePerProcess
from angzarr.sagas.escalation import BREAKER, HANDLER, Escalation, deliver, shortened
from angzarr.settings.sagas import SECTION, SagaCompensationSettings
from angzarr.wiring import stores as wiring

_log = logging.getLogger("angzarr.sagas")

#: No words of its own are looked for in a text, only patterns.
_NO_WORDS: Final = Words()


class Escalating(Registering, Ruling):
    """What an app does to tell people; the handler that tells them takes its ordinary road."""

    _poster: OncePerProcess[Any]

    def escalate(self, escalation: Escalation) -> None:
        """Write the line ``saga_escalated``, and have *escalation* posted where there is a webhook.

        With the same id it is safe to do it again: it is posted once. Raises what `publish`
        raises; then the line was written and nothing was sent for certain.
        """
        shown = shortened(self._bare(escalation))
        wiring.write_error("angzarr.sagas", "saga_escalated", _fields(shown))
        given = self.settings.saga_compensation
        if given.escalation_webhook_url is None:
            return
        self.publish(
            shown,
            id=shown.id,
            domain=given.fallback_domain,
            root=shown.root,
            correlation_id=shown.correlation_id or None,
            occurred_at=shown.occurred_at,
        )

    def _bare(self, escalation: Escalation) -> Escalation:
        return replace(
            escalation,
            rejection_reason=self.without_secrets(escalation.rejection_reason),
            compensation_reason=self.without_secrets(escalation.compensation_reason),
        )

    def without_secrets(self, text: str) -> str:
        """Return *text* without what the settings hide in the texts of letters."""
        patterns = [compiled(pattern) for pattern in self.settings.dlq.redact_text]
        return masked(text, _NO_WORDS, patterns)

    def take_escalations(self) -> None:
        """Register what posts escalations, if the settings name a webhook."""
        given = self.settings.saga_compensation
        self._poster = OncePerProcess(lambda: open_poster(given))
        if given.escalation_webhook_url is None:
            return

        def escalation(event: Escalation) -> None:
            deliver(event, self._poster.get().post)

        self.handler(
            Escalation,
            domain=given.fallback_domain,
            operation="webhook",
            breaker=BREAKER,
            name=HANDLER,
        )(escalation)

    def check_escalations(self) -> None:
        """Refuse a webhook that cannot be posted to; raises MissingExtra, ConfigurationError."""
        given = self.settings.saga_compensation
        if given.escalation_webhook_url is None:
            return
        open_poster(given).close()
        if not given.escalation_webhook_secrets:
            _log.warning(
                "escalations_unsigned: a receiver cannot tell escalations from forgeries;"
                " set %s.escalation_webhook_secrets",
                SECTION,
            )


def open_poster(given: SagaCompensationSettings) -> Any:
    """Return what posts to the webhook that *given* names; raises as `check_escalations` does."""
    adapter = wiring.adapter("angzarr.adapters.http.poster", "httpx")
    assert given.escalation_webhook_url is not None  # noqa: S101 - who asks has looked
    try:
        return adapter.Poster(
            given.escalation_webhook_url.get_secret_value(),
            keys=given.keys(),
            ca_certs=given.escalation_webhook_ca_certs,
        )
    except OSError as error:
        msg = f"{SECTION}.escalation_webhook_ca_certs cannot be read as certificates"
        raise ConfigurationError(msg) from error


def _fields(escalation: Escalation) -> dict[str, Any]:
    return {
        "escalation_id": escalation.id,
        "saga_name": escalation.saga_name,
        "triggering_domain": escalation.domain,
        "triggering_root": escalation.root,
        "triggering_sequence": escalation.triggering_sequence,
        "rejection_reason": escalation.rejection_reason,
        "compensation_reason": escalation.compensation_reason,
        "occurred_at": escalation.occurred_at.isoformat(),
        "correlation_id": escalation.correlation_id,
    }
