"""Policies as JSON, for programs. Spans are seconds."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from angzarr.cli.explanation import Explanation
from angzarr.resilience.backoff import Policy
from angzarr.resilience.policy_conditions import PolicyRule


def policy_json(policy: Policy) -> dict[str, Any]:
    """Return a policy as a JSON object; spans are seconds."""
    return {
        "name": policy.name,
        "base": policy.base.total_seconds(),
        "max_delay": policy.max_delay.total_seconds(),
        "max_attempts": policy.max_attempts,
        "multiplier": policy.multiplier,
        "jitter": policy.jitter.value,
        "ratio": policy.ratio,
        "retry_on": None if policy.retried is None else list(policy.retried),
    }


def rule_json(rule: PolicyRule) -> dict[str, Any]:
    """Return a rule as a JSON object."""
    conditions = {c.name: _plain(c.wanted) for c in rule.conditions}
    return {"rule": rule.source, "policy": rule.policy.name, "conditions": conditions}


def explanation_json(found: Explanation) -> dict[str, Any]:
    """Return everything that an explanation tells as a JSON object."""
    return {
        "case": {name: _plain(value) for name, value in found.case._asdict().items()},
        "error": found.seen and {"code": found.seen.code, "reason": found.seen.reason},
        "retry_after": _plain(found.least),
        "policy": policy_json(found.policy),
        "rule": found.rule.source,
        "tried": [
            rule_json(tried.rule)
            | {
                "matched": tried.missed is None,
                "decides": tried.rule is found.rule,
                "why": found.why(tried),
            }
            for tried in found.tried
        ],
        "not_retried": found.end or None,
        "schedule": [
            {
                "after_run": row.attempt,
                "earliest": row.earliest.total_seconds(),
                "latest": row.latest.total_seconds(),
                "ends_earliest": row.ends_earliest.total_seconds(),
                "ends_latest": row.ends_latest.total_seconds(),
                "in_time": found.in_time(row),
            }
            for row in found.waits
        ],
    }


def _plain(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value
