"""Cost reports: what was spent, by whom and why, and how much of it on what failed (spec F2). Pure.

Costs of different currencies are never added to each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from angzarr.facts.query import CostSum, FactField
from angzarr.runtime.csv_lines import csv_line

#: What costs can be told by; as people write it.
COST_FIELDS: Final = (
    FactField.TENANT, FactField.TOOL, FactField.DAY, FactField.CAUSE, FactField.OPERATION,
    FactField.CONFIG, FactField.EVENT,
)  # fmt: skip
#: What each line of a report ends with.
_SUMS: Final = ("currency", "amount", "failed", "costs", "failed_costs")


def report_json(by: Sequence[FactField], sums: Iterable[CostSum]) -> list[dict[str, Any]]:
    """*sums* as JSON objects; amounts are texts, which no reader rounds."""
    return [
        {field.value: value for field, value in zip(by, one.values, strict=True)} | sum_json(one)
        for one in sums
    ]


def sum_json(one: CostSum) -> dict[str, Any]:
    """The numbers of *one*."""
    return {
        "currency": one.currency,
        "amount": f"{one.amount:f}",
        "failed": f"{one.failed:f}",
        "costs": one.facts,
        "failed_costs": one.failed_facts,
    }


def report_csv(by: Sequence[FactField], sums: Iterable[CostSum]) -> Iterator[bytes]:
    """*sums* as lines of CSV, the names of the columns first."""
    yield csv_line([*(field.value for field in by), *_SUMS])
    for one in sums:
        yield csv_line([*one.values, *sum_json(one).values()])
