"""Escalating: tells people that a saga's step could not be undone (spec C5, C7).

An escalation writes a line and publishes an event; it never waits for the webhook.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from angzarr.sagas.escalation import BREAKER, HANDLER, Escalation, deliver, shortened
from angzarr.wiring import stores as wiring
from angzarr.wiring.context import AppContext
from angzarr.wiring.protection import without_secrets


class Escalations:
    """Escalates to people; the executor runs the handler that posts, like any other."""

    def __init__(self, context: AppContext, publish: Callable[..., object]) -> None:
        self._context = context
        self._publish = publish

    def escalate(self, escalation: Escalation) -> None:
        """Write the line ``saga_escalated``, and have *escalation* posted where there is a webhook.

        With the same id it is safe to do it again: it is posted once. Raises what `publish`
        raises; then the line was written and nothing was sent for certain.
        """
        shown = shortened(self._bare(escalation))
        wiring.write_error("angzarr.sagas", "saga_escalated", _fields(shown))
        given = self._context.settings.saga_compensation
        if given.escalation_webhook_url is None:
            return
        self._publish(
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
            rejection_reason=self._shown(escalation.rejection_reason),
            compensation_reason=self._shown(escalation.compensation_reason),
        )

    def _shown(self, text: str) -> str:
        return without_secrets(self._context.settings.dlq, text)

    def register(self, handler: Callable[..., Any], poster: Callable[[], Any]) -> None:
        """Register what posts escalations by *handler*, if the settings name a webhook."""
        given = self._context.settings.saga_compensation
        if given.escalation_webhook_url is None:
            return

        def escalation(event: Escalation) -> None:
            deliver(event, poster().post)

        handler(
            Escalation,
            domain=given.fallback_domain,
            operation="webhook",
            breaker=BREAKER,
            name=HANDLER,
        )(escalation)


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
