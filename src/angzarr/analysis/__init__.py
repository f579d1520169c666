"""The DLQ-analysis worker: understand, decide, replay. Here: what rules in Python need."""

from angzarr.analysis.entry import FailureClass
from angzarr.analysis.evidence import BreakerSeen, Evidence, Health, Problem
from angzarr.analysis.transition import Action, Decision

__all__ = ["Action", "BreakerSeen", "Decision", "Evidence", "FailureClass", "Health", "Problem"]
