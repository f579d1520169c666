"""Why an entry has its class, as JSON: every door says the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from angzarr.analysis.classification.classify import Explanation
from angzarr.analysis.classification.evidence_view import Clue
from angzarr.analysis.classification.rules import Tried
from angzarr.analysis.ledger.entry import Entry


def explanation_json(entry: Entry, found: Explanation, told: Sequence[Clue]) -> dict[str, Any]:
    """Return the same as a JSON object."""
    decision, rule = found.decision, deciding(found.tried)
    return {
        "id": entry.id,
        "status": entry.status,
        "failure_class": entry.failure_class,
        "now": {
            "failure_class": decision.failure_class,
            "action": decision.action,
            "delay": decision.delay.total_seconds(),
            "evidence": decision.evidence,
            "rule": rule.rule.name if rule else None,
            "overruled": found.overruled or None,
        },
        "rules": [_rule_json(tried, rule) for tried in found.tried],
        "evidence": [
            {"name": name, "says": says, "source": source, "at": at, "known": says is not None}
            for name, says, source, at in told
        ],
    }


def deciding(tried: Sequence[Tried]) -> Tried | None:
    """Return the first rule that fits."""
    return next((one for one in tried if one.verdict is not None), None)


def _rule_json(tried: Tried, chosen: Tried | None) -> dict[str, Any]:
    verdict = tried.verdict
    return {
        "name": tried.rule.name,
        "source": tried.rule.source,
        "fits": verdict is not None,
        "decides": tried is chosen,
        "failure_class": verdict and verdict.failure_class,
        "action": verdict and verdict.action,
        "because": tried.why,
        "failed": tried.failed,
    }
