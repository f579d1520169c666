from __future__ import annotations

from datetime import UTC, datetime

from angzarr.facts.fact import Fact
from angzarr.facts.kept_ids import KeptFactIds

AT = datetime(2026, 5, 4, tzinfo=UTC)
A, B, C = (Fact(id=name, type="error", subtype="external", at=AT) for name in "abc")


def test_what_is_kept_is_not_new_until_it_is_forgotten():
    kept = KeptFactIds()
    assert kept.new_of([A, B]) == [A, B]
    kept.add([A])
    kept.add([A])
    assert (kept.new_of([C, A, B]), len(kept)) == ([C, B], 1)
    kept.forget([A, B])
    assert (kept.new_of([A, B]), len(kept)) == ([A, B], 0)


def test_beyond_its_bound_the_oldest_are_forgotten():
    kept = KeptFactIds(most=2)
    kept.add([A, B, C])
    assert (kept.new_of([A, B, C]), len(kept)) == ([A], 2)
