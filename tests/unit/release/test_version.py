"""The package, its tag and the changelog name one version, or the release is refused."""

from __future__ import annotations

import pytest
from release.version import declared, wrongs

CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-11-24\n\n## [0.1.0] - 2026-10-01\n"


def test_the_number_is_read_from_the_package():
    assert declared('x = 1\n__version__ = "0.2.0"\n') == "0.2.0"
    assert declared("x = 1\n") == ""


@pytest.mark.parametrize(
    ("version", "here", "tags"),
    [
        ("0.3.0", [], ["v0.1.0", "v0.2.0"]),  # on the way to the next
        ("0.2.0", [], ["v0.1.0"]),  # dated, not tagged yet
        ("0.2.0", ["v0.2.0"], ["v0.1.0", "v0.2.0"]),  # the release
        ("0.3.0rc1", [], []),
    ],
)
def test_what_agrees_is_let_pass(version, here, tags):
    assert wrongs(version, CHANGELOG, here, tags) == []


@pytest.mark.parametrize(
    ("version", "here", "tags", "said"),
    [
        ("", [], [], "say it as 1.2.3"),
        ("0.2.0rc1", [], [], "0.2.0, which is after 0.2.0rc1: raise __version__"),
        ("0.02.0", [], [], "say it as 1.2.3"),
        ("0.1.0", [], [], "0.2.0, which is after 0.1.0: raise __version__"),
        ("0.2.0", ["v0.2.1"], [], "tag v0.2.1 is on this commit, whose version is 0.2.0"),
        ("0.3.0", ["v0.3.0"], [], "v0.3.0 has no section in the changelog with its day"),
        ("0.2.0", [], ["v0.0.9"], "v0.0.9 has no section in the changelog with its day"),
        ("0.2.0", [], ["v0.2.0"], "v0.2.0 is out, and this is another commit"),
    ],
)
def test_what_does_not_agree_is_refused_in_a_sentence(version, here, tags, said):
    assert any(said in one for one in wrongs(version, CHANGELOG, here, tags))


@pytest.mark.parametrize("day", ["", " - soon", " - 2026-13-01", " - 24-11-2026"])
def test_a_tagged_version_needs_a_day(day):
    (said,) = wrongs("0.2.0", f"## [0.2.0]{day}\n", ["v0.2.0"], [])
    assert "write ## [0.2.0] - YYYY-MM-DD" in said


def test_a_heading_that_is_no_version_is_refused():
    (said,) = wrongs("0.2.0", "## [Next]\n", [], [])
    assert "'Next' is no version" in said
