"""The DLQ-analysis worker: understand, decide, replay. Here: what rules in Python need."""

from angzarr.analysis.classification.evidence import BreakerSeen, Evidence, Health, Problem
from angzarr.analysis.ledger.entry import FailureClass
from angzarr.analysis.ledger.transition import Action, Decision

__all__ = ["Action", "BreakerSeen", "Decision", "Evidence", "FailureClass", "Health", "Problem"]
