"""The DLQ-analysis worker: understand, decide, replay. Here: what rules in Python need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from angzarr.runtime.late_names import late_names

__all__ = [
    "Action",
    "BreakerSeen",
    "DependencyHealth",
    "EntryDecision",
    "Evidence",
    "FailureClass",
    "ReplayProblem",
]

if TYPE_CHECKING:
    from angzarr.analysis.classification.evidence import (
        BreakerSeen,
        DependencyHealth,
        Evidence,
        ReplayProblem,
    )
    from angzarr.analysis.ledger.entry import FailureClass
    from angzarr.analysis.ledger.transition import Action, EntryDecision
else:  # hidden from type checkers, which would take every name for granted
    __getattr__, __dir__ = late_names(
        __name__,
        {
            "angzarr.analysis.classification.evidence": (
                "BreakerSeen",
                "DependencyHealth",
                "Evidence",
                "ReplayProblem",
            ),
            "angzarr.analysis.ledger.entry": ("FailureClass",),
            "angzarr.analysis.ledger.transition": (
                "Action",
                "EntryDecision",
            ),
        },
    )
