"""Figures of shipping: read from what tests record, so the tests must be there and record it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from figures import shipping
from harness import recorded

TESTS = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("cluster/test_tutorial.py", shipping.TUTORIAL),
        ("cluster/test_rolling_update.py", shipping.ROLL_OUT),
        ("system/test_doctor.py", shipping.FINDINGS),
    ],
)
def test_the_tests_that_record_a_figure_exist(module, name):
    head, found, body = (TESTS / module).read_text().partition(f"def {name}(")
    assert found, head[:80]
    assert "record(" in body.split("\ndef ")[0]


def test_reports_are_found_by_case_and_no_others(tmp_path, monkeypatch):
    monkeypatch.setattr(recorded, "_REPORTS", tmp_path)
    for name in ("test_a", "test_a[x-1]", "test_a[y]", "test_ab", "test_ab[x]"):
        (tmp_path / f"{name}.json").write_text(json.dumps(name))
    assert {case: one.stem for case, one in recorded._reports("test_a").items()} == {
        "": "test_a",
        "x-1": "test_a[x-1]",
        "y": "test_a[y]",
    }
