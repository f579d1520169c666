"""Sagas: from events to commands, and from a rejection to its compensation (spec C4, C5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from angzarr.runtime.late_names import late_names

__all__ = [
    "CompensationContext",
    "Flags",
    "SagaCompensationFailed",
    "build_revoke_command_book",
    "delegate_to_framework",
    "emit_compensation_events",
    "handle_business_response",
    "pm_delegate_to_framework",
    "pm_emit_compensation_events",
    "process_revocation_flags",
]

if TYPE_CHECKING:
    from angzarr.sagas.escalation import SagaCompensationFailed
    from angzarr.sagas.rejection import CompensationContext
    from angzarr.sagas.rejection_answers import (
        Flags,
        build_revoke_command_book,
        delegate_to_framework,
        emit_compensation_events,
        handle_business_response,
        pm_delegate_to_framework,
        pm_emit_compensation_events,
        process_revocation_flags,
    )
else:  # hidden from type checkers, which would take every name for granted
    __getattr__, __dir__ = late_names(
        __name__,
        {
            "angzarr.sagas.escalation": ("SagaCompensationFailed",),
            "angzarr.sagas.rejection": ("CompensationContext",),
            "angzarr.sagas.rejection_answers": (
                "Flags",
                "build_revoke_command_book",
                "delegate_to_framework",
                "emit_compensation_events",
                "handle_business_response",
                "pm_delegate_to_framework",
                "pm_emit_compensation_events",
                "process_revocation_flags",
            ),
        },
    )
