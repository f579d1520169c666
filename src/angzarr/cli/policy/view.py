"""Policies for people and programs: tables, a schedule drawn in text, and why a failure has one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from angzarr.cli.terminal import console, safe
from angzarr.resilience.backoff import BackoffWait, Jitter, Policy, waits
from angzarr.resilience.policy_rules import PolicyCase, PolicyRule, TriedRule
from angzarr.resilience.taxonomy import Category, Classification, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Which policy a failure gets, and all that led there."""

    case: PolicyCase
    #: The rules in the order in which they are tried.
    tried: Sequence[TriedRule]
    #: What the other side asks for.
    least: timedelta | None = None
    #: What kind of error it is, and what is done about such; None: no error was named.
    seen: Classification | None = None
    #: One of the class that was named, which says nothing but its class.
    error: BaseException | None = None
    verdict: Verdict | None = None

    @property
    def rule(self) -> PolicyRule:
        """The rule that decides."""
        return next(rule for rule, missed in self.tried if missed is None)

    @property
    def policy(self) -> Policy:
        """The policy it gives."""
        return self.rule.policy

    @property
    def end(self) -> str:
        """Why such an error is not retried; empty: it is."""
        if self.seen is None or self.verdict is None:
            return ""
        if self.verdict is not Verdict.RETRY:
            end = "skipped" if self.verdict is Verdict.SKIP else "a dead letter"
            return f"{self.seen.category} errors are not retried, whatever the policy: {end}"
        if not self.policy.retries(self.seen.category, self.error):
            return self._not_retried(self.seen.category)
        if self.policy.max_attempts == 1:
            return f"{self.policy.name} allows one run: a dead letter"
        return ""

    def _not_retried(self, category: Category) -> str:
        if not self.policy.retry_errors:
            return f"{self.policy.name} does not retry {category} errors: a dead letter"
        only = ", ".join(self.policy.retried or ())
        which = "" if self.error is not None else ", and which class it is was not said"
        return f"{self.policy.name} retries {only} alone{which}: a dead letter"

    @property
    def waits(self) -> list[BackoffWait]:
        """What would be waited if every run fails like this, to the first that is too long."""
        rows = [] if self.end else list(waits(self.policy, self.least))
        late = next((n for n, row in enumerate(rows) if self.in_time(row) is False), len(rows))
        return rows[: late + 1]

    def in_time(self, row: BackoffWait) -> bool | None:
        """True if the run after *row* begins before the deadline; None: that is chance."""
        left = self.case.time_left
        if left is None or row.ends_latest < left:
            return True
        return False if row.ends_earliest >= left else None

    def why(self, tried: TriedRule) -> str:
        """Say in words what became of a rule."""
        if tried.rule is self.rule:
            return "decides"
        if tried.missed is None:
            return "fits, but comes later in this order"
        name = tried.missed.name
        found = getattr(self.case, name)
        if isinstance(found, timedelta):
            return f"{span_of(found)} is left"
        nothing = {"category": "no error yet", "time_left": "no deadline"}
        return f"{name} is {found}" if found else nothing.get(name, f"no {name}")


def span_of(span: timedelta) -> str:
    """The *span* in words: ``1 min 30 s``."""
    seconds = span.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:g} ms"
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.3g} s"
    hours, left = divmod(round(seconds), 3600)
    minutes, left = divmod(left, 60)
    parts = ((hours, "h"), (minutes, "min"), (left, "s"))
    return " ".join(f"{number} {unit}" for number, unit in parts if number)


#: Characters of the longest bar.
_BAR: Final = 32


def policies_table(policies: Iterable[Policy]) -> Table:
    """A table with one row a policy."""
    table = Table()
    for column in ("policy", "base", "max delay", "runs", "multiplier", "jitter", "retries"):
        table.add_column(column, justify="right" if column in _NUMBERS else "left")
    for policy in policies:
        only = "all" if policy.retried is None else ", ".join(policy.retried)
        table.add_row(
            safe(policy.name), span_of(policy.base), span_of(policy.max_delay),
            str(policy.max_attempts), f"{policy.multiplier:g}", _jitter(policy), only,
        )  # fmt: skip
    return table


_NUMBERS: Final = frozenset({"base", "max delay", "runs", "multiplier", "run", "delay", "after"})


def rules_table(rules: Iterable[PolicyRule]) -> Table:
    """A table with one row a rule."""
    table = Table("rule", "if", "policy")
    for rule in rules:
        table.add_row(safe(rule.source), safe(_conditions(rule)), safe(rule.policy.name))
    return table


def print_explanation(found: Explanation) -> None:
    """Print it: the policy, the rules that were tried, the schedule."""
    out = console()
    out.print(safe(_case(found)))
    out.print(safe(f"policy {found.policy.name}, by {found.rule.source}", "bold"))
    out.print(_tried(found))
    if found.end:
        out.print(safe(found.end, "red"))
        return
    out.print(_schedule(found))
    if all(found.in_time(row) is not False for row in found.waits):
        out.print(f"run {found.policy.max_attempts} is the last; if it fails too: a dead letter")
    out.print("how long runs take is not in these figures")


def _case(found: Explanation) -> str:
    said = [
        f"{name} {span_of(value) if isinstance(value, timedelta) else value}"
        for name, value in found.case._asdict().items()
        if value
    ]
    seen = f" ({found.seen.code}, {found.seen.reason})" if found.seen else ""
    least = f" · asked to wait {span_of(found.least)}" if found.least else ""
    return f"{' · '.join(said)}{seen}{least}"


def _tried(found: Explanation) -> Table:
    table = Table("", "rule", "if", "policy", "")
    for tried in found.tried:
        rule, missed = tried
        decides = rule is found.rule
        style = "green" if decides else "dim"
        table.add_row(
            safe("✓" if missed is None else "✗", "green" if missed is None else "red"),
            safe(rule.source, style), safe(_conditions(rule), style),
            safe(rule.policy.name, style), safe(found.why(tried), style),
        )  # fmt: skip
    return table


def _schedule(found: Explanation) -> Table:
    table = Table()
    for column in ("run", "delay", "after", ""):
        table.add_column(column, justify="right" if column in _NUMBERS else "left", no_wrap=True)
    rows = found.waits
    longest = max((row.latest for row in rows), default=timedelta(0))
    table.add_row("1", "", "", "")
    for row in rows:
        table.add_row(
            str(row.attempt + 1),
            _range(row.earliest, row.latest),
            _range(row.ends_earliest, row.ends_latest),
            _bar(row, longest) + safe(_in_words(found.in_time(row)), "red"),
        )
    return table


def _bar(row: BackoffWait, longest: timedelta) -> Text:
    """Draw a wait: solid to its earliest end, light to its latest."""
    if not longest:
        return Text("")
    solid = round(_BAR * (row.earliest / longest))
    light = max(round(_BAR * (row.latest / longest)) - solid, 0)
    return Text("█" * solid + "░" * light or "▏", style="cyan")


def _in_words(in_time: bool | None) -> str:  # noqa: FBT001 - three answers
    if in_time is None:
        return " perhaps too late"
    return "" if in_time else " too late: a dead letter"


def _conditions(rule: PolicyRule) -> str:
    return " and ".join(map(str, rule.conditions)) or "always"


def _jitter(policy: Policy) -> str:
    additive = policy.jitter is Jitter.ADDITIVE
    return f"{policy.jitter} {policy.ratio:g}" if additive else policy.jitter.value


def _range(earliest: timedelta, latest: timedelta) -> str:
    return span_of(earliest) if earliest == latest else f"{span_of(earliest)} to {span_of(latest)}"


def policy_json(policy: Policy) -> dict[str, Any]:
    """A policy as a JSON object; spans are seconds."""
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
    """A rule as a JSON object."""
    conditions = {c.name: _plain(c.wanted) for c in rule.conditions}
    return {"rule": rule.source, "policy": rule.policy.name, "conditions": conditions}


def explanation_json(found: Explanation) -> dict[str, Any]:
    """The whole explanation as a JSON object."""
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
