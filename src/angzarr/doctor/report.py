"""The report of one run of the doctor, the worst finding first, and all checks in page order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from angzarr.doctor import (
    celery_rules,
    database_rules,
    encryption_rules,
    finding,
    fleet_rules,
    letter_rules,
    payload_rules,
    rabbitmq_rules,
    redis_rules,
    refusal_rules,
    sqs_rules,
)
from angzarr.doctor.finding import Check, Finding, Severity

#: The number of the JSON form: it changes when a field is renamed or removed, not when one is new.
SCHEMA: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorReport:
    """What was found."""

    app: str
    #: Servers that were looked at, as findings name them.
    servers: Sequence[str]
    findings: Sequence[Finding]
    seconds: float

    def counts(self) -> dict[str, int]:
        """The number of findings by severity; what is unknown counts as that."""
        found = Counter(_group(one) for one in self.findings)
        return {name: found[name] for name in (*(one.value for one in Severity), "unknown")}

    def fails(self, at: Severity | None) -> bool:
        """True if something is at least as bad as *at*; None: nothing fails."""
        return at is not None and any(
            one.known and one.severity.rank <= at.rank for one in self.findings
        )


def chosen(
    findings: Iterable[Finding], only: Collection[str] = (), skip: Collection[str] = ()
) -> list[Finding]:
    """The findings of the checks *only* (all, if none is named) but those to *skip*."""
    those = [
        one for one in findings if (not only or one.check.id in only) and one.check.id not in skip
    ]
    return sorted(those, key=_order)


def _order(one: Finding) -> tuple[int, bool, str, str]:
    return one.severity.rank, not one.known, one.check.id, one.at


def _group(one: Finding) -> str:
    return one.severity.value if one.known else "unknown"


def as_json(
    report: DoctorReport, fail_on: Severity | None, fixed: Sequence[Mapping[str, Any]]
) -> Any:
    """*report* for programs; see the reference for its fields."""
    return {
        "schema": SCHEMA,
        "app": report.app,
        "failed": report.fails(fail_on),
        "fail_on": fail_on.value if fail_on else "never",
        "counts": report.counts(),
        "servers": list(report.servers),
        "seconds": round(report.seconds, 3),
        "findings": [_finding_json(one) for one in report.findings],
        "fixed": list(fixed),
    }


def _finding_json(one: Finding) -> dict[str, Any]:
    return {
        "id": one.check.id,
        "severity": one.severity.value,
        "known": one.known,
        "area": one.check.area.value,
        "at": one.at,
        "seen": one.seen,
        "why": one.check.why,
        "change": one.change,
        "fixable": one.fix is not None,
    }


CHECKS: Final[tuple[Check, ...]] = (
    *finding.SERVER_CHECKS,
    *refusal_rules.CHECKS,
    *celery_rules.CHECKS,
    *refusal_rules.STOCK_CHECKS,
    *celery_rules.TIME_CHECKS,
    *redis_rules.CHECKS,
    *rabbitmq_rules.CHECKS,
    *sqs_rules.CHECKS,
    *letter_rules.CHECKS,
    *letter_rules.PAYLOAD_CHECKS,
    *encryption_rules.ENCRYPTION_CHECKS,
    *payload_rules.BODY_CHECKS,
    *database_rules.CHECKS,
    *fleet_rules.CHECKS,
)
IDS: Final = frozenset(check.id for check in CHECKS)


def misspelt(ids: Collection[str]) -> list[str]:
    """All *ids* that no check has, sorted."""
    return sorted(set(ids) - IDS)
