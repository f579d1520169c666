"""The DLQ-analysis worker: understand, decide, replay. Here: what rules in Python need."""

from angzarr.analysis.classification.evidence import (
    BreakerSeen,
    DependencyHealth,
    Evidence,
    ReplayProblem,
)
from angzarr.analysis.ledger.entry import FailureClass
from angzarr.analysis.ledger.transition import Action, EntryDecision

__all__ = [
    "Action",
    "BreakerSeen",
    "DependencyHealth",
    "EntryDecision",
    "Evidence",
    "FailureClass",
    "ReplayProblem",
]
