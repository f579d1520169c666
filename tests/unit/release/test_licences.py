"""No licence is shipped that was never reviewed."""

from __future__ import annotations

import pytest
from release.licences import LOOKED_AT, obligations, wrong


@pytest.mark.parametrize(
    "declared",
    [
        ["MIT"],
        ["Apache-2.0 OR GPL-3.0-only"],
        ["GPL-3.0-only OR (BSD-3-Clause AND MIT)"],
        ["MIT AND PSF-2.0"],
        ["License :: OSI Approved :: BSD License"],
        ["License :: OSI Approved :: Apache Software License", "MIT"],
    ],
)
def test_permissive_licences_pass(declared):
    assert wrong("anything", declared) == ""


@pytest.mark.parametrize(
    "declared",
    [
        ["GPL-3.0-only"],
        ["AGPL-3.0-or-later"],
        ["MIT AND GPL-2.0-only"],
        ["MIT", "SSPL-1.0"],
        ["Apache-2.0 WITH Some-exception"],
        ["MIT OR"],
        ["(MIT"],
        ["MIT MIT"],
        [""],
        ["see LICENSE"],
        ["License :: Other/Proprietary License"],
        ["LGPL-3.0-only"],  # known of psycopg, not of others
    ],
)
def test_whatever_else_is_declared_stops_the_release(declared):
    assert "review it and name it" in wrong("anything", declared)


def test_a_package_that_declares_nothing_stops_the_release():
    assert "declares no licence" in wrong("anything", [])


def test_what_asks_for_more_passes_for_its_package_and_is_told():
    assert wrong("psycopg", ["LGPL-3.0-only"]) == ""
    (line,) = obligations({"psycopg": ["LGPL-3.0-only"], "celery": ["BSD-3-Clause"]})
    assert line.startswith("psycopg (LGPL-3.0-only): imported at run time")
    assert all(LOOKED_AT.values())
