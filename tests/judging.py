"""Classifiers and evidence for tests."""

from __future__ import annotations

from datetime import timedelta

from tests.contracts.ledger import letter_of
from tests.hand_clock import START

from angzarr.analysis.classification.classify import Classifier, ReplayDelays, Unattended
from angzarr.analysis.classification.evidence import BreakerSeen, Evidence
from angzarr.analysis.classification.rules import built_in_rules, in_order, rules_from
from angzarr.analysis.ledger.counts import PeerStats
from angzarr.resilience.breaker import Phase
from angzarr.settings.analysis import AnalysisSettings


def classifier(rules=(), python=(), *, replacement=None, chance=lambda: 0.0, **settings):
    """A classifier with rules of a user before those that ship; no chance."""
    given = AnalysisSettings(**settings)
    return Classifier(
        rules=in_order(rules_from(rules, "test"), python, built_in_rules()),
        pauses=ReplayDelays(backoff=given.replay_backoff(), chance=chance),
        max_replays=given.max_replays,
        longest_wait=given.longest_wait,
        unattended=Unattended(oldest=given.automatic.oldest),
        replacement=replacement,
    )


def evidence_of(failure=None, **known):
    """What is known of a letter a minute after it was written; its own fields go to it."""
    names = Evidence.__dataclass_fields__
    of_letter = {name: known.pop(name) for name in list(known) if name not in names}
    return Evidence(
        failure=failure or letter_of(**of_letter),
        **{"now": START + timedelta(minutes=1), **known},
    )


def breaker(phase=Phase.CLOSED, name="crm", **fields):
    return BreakerSeen(name=name, phase=phase, **fields)


WELL = {"breakers": (breaker(calls=100),)}
ILL = {"breakers": (breaker(Phase.OPEN, retry_at=START + timedelta(minutes=2)),)}


def fared(events=1, failed=1, handled=0):
    return PeerStats(events=events, failed=failed, handled=handled)
