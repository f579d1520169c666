"""The closing line: the sum of runs that overlap, and what makes it fail."""

from __future__ import annotations

import pytest

import closing_line


@pytest.fixture
def report(tmp_path):
    def write(name, minute, failures=0, cases=""):
        path = tmp_path / f"{name}.xml"
        path.write_text(
            f'<testsuites><testsuite tests="5" failures="{failures}" errors="0" skipped="1"'
            f' time="60" timestamp="2026-11-27T11:{minute}:00+00:00">'
            f"{cases}</testsuite></testsuites>"
        )
        return str(path)

    return write


def test_runs_side_by_side_take_from_the_first_beginning_to_the_last_end(report, capsys):
    assert closing_line.main([report("a", "10"), report("b", "12")]) == 0
    assert capsys.readouterr().out == "===== 8 passed, 2 skipped in 180.00s =====\n"


def test_a_failure_or_no_test_at_all_is_no_success(report, capsys):
    assert closing_line.main([report("a", "10"), report("b", "10", failures=1)]) == 1
    assert closing_line.main([]) == 1
    assert "no tests ran in 0.00s" in capsys.readouterr().out


def test_what_failed_is_named_before_the_sum(report, capsys):
    cases = (
        '<testcase classname="tests.a" name="test_x[1]"><failure message="assert 1 ==\n 2"/>'
        "</testcase>"
        '<testcase classname="tests.a" name="test_y"><error message="gone"/></testcase>'
        '<testcase classname="tests.a" name="test_z"><skipped message="no"/></testcase>'
    )
    assert closing_line.main([report("a", "10", failures=1, cases=cases)]) == 1
    assert capsys.readouterr().out.splitlines()[:-1] == [
        "FAILED tests.a::test_x[1] - assert 1 == 2",
        "ERROR tests.a::test_y - gone",
    ]
