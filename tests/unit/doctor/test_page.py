"""docs/reference/doctor.md has every check as the code has it, and every option."""

from __future__ import annotations

import re
from pathlib import Path

from angzarr.cli.doctor import doctor
from angzarr.doctor.report import CHECKS, IDS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "doctor.md"
ROW = re.compile(r"^\| `([a-z-]+)` \| (\w+) \| (.+?) \| (.+?) \| (yes|-) \|$", re.MULTILINE)


SEVERITIES = {"critical", "error", "warning", "info"}


def test_the_page_lists_every_check_as_it_is():
    found = ROW.findall(PAGE.read_text())
    listed = {name: row for name, *row in found if row[1] not in {*SEVERITIES, "-"}}
    assert listed == {
        check.id: [check.severity, check.looks_at, check.why, "yes" if check.fixable else "-"]
        for check in CHECKS
    }


def test_the_page_names_every_option():
    page = PAGE.read_text()
    named = {name for option in doctor.params for name in option.opts if name.startswith("--")}
    assert {name for name in named if f"`{name}" not in page} == set()


def test_the_comparison_names_checks_that_exist():
    rows = re.findall(r"^\| `([a-z-]+)` \|(?: [a-z-]+ \|){4}$", PAGE.read_text(), re.MULTILINE)
    assert len(rows) >= 15
    assert set(rows) <= IDS
