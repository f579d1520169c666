"""docs/reference/doctor.md has every check of the code as it is, and every option of the command."""

from __future__ import annotations

import re
from pathlib import Path

from angzarr.cli.doctor import doctor
from angzarr.doctor.catalogue import CHECKS, IDS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "doctor.md"
ROW = re.compile(r"^\| `([a-z-]+)` \| (\w+) \| (.+?) \| (.+?) \| (yes|-) \|$", re.MULTILINE)


def test_the_page_lists_every_check_as_it_is():
    rows = {row[0]: row[1:] for row in ROW.findall(PAGE.read_text()) if row[0] in IDS}
    compared = {
        name: row for name, row in rows.items() if row[0] in SEVERITIES and row[2] not in CELLS
    }
    assert compared == {
        check.id: (check.severity.value, check.looks_at, check.why, "yes" if check.fixable else "-")
        for check in CHECKS
    }


SEVERITIES = {"critical", "error", "warning", "info"}
CELLS = {*SEVERITIES, "-"}


def test_the_page_names_every_option():
    page = PAGE.read_text()
    named = {name for option in doctor.params for name in option.opts if name.startswith("--")}
    assert {name for name in named if f"`{name}" not in page} == set()


def test_the_comparison_names_checks_that_exist():
    rows = re.findall(r"^\| `([a-z-]+)` \|(?: [a-z-]+ \|){4}$", PAGE.read_text(), re.MULTILINE)
    assert len(rows) >= 15
    assert set(rows) <= IDS
