"""The reference pages say what the code does."""

from __future__ import annotations

from pathlib import Path

import pytest

from angzarr.resilience.backoff import Policy
from angzarr.resilience.category import RETRYABLE, Category
from angzarr.resilience.policies import NO_RETRY, POLICIES

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference"


def rows(page: str) -> dict[str, list[str]]:
    lines = (REFERENCE / page).read_text().splitlines()
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in lines if line[:1] == "|"]
    return {row[0].strip("`"): row[1:] for row in cells if row[0].startswith("`")}


def seconds(cell: str) -> float:
    number, unit = cell.split()
    return float(number) / {"s": 1, "ms": 1000}[unit]


@pytest.mark.parametrize("policy", [p for p in POLICIES.values() if p is not NO_RETRY])
def test_backoff_page_has_the_figures_of_every_policy(policy: Policy) -> None:

    base, most, attempts, jitter = rows("backoff.md")[policy.name]
    assert seconds(base) == policy.base.total_seconds()
    assert seconds(most) == policy.max_delay.total_seconds()
    assert (int(attempts), jitter) == (policy.max_attempts, policy.jitter)


@pytest.mark.parametrize("category", Category)
def test_taxonomy_page_says_what_is_retried(category: Category) -> None:
    assert rows("error-taxonomy.md")[category][0].startswith("retried") is (category in RETRYABLE)
