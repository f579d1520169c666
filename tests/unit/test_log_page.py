"""docs/reference/log.md has a row for each event of our log from WARNING up, and no other."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from log_events import Said, all_said, said_in

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "log.md"
LEVELS = ("INFO", "WARNING", "ERROR", "CRITICAL")

#: event | level | means | do
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split(" | "))
    for line in PAGE.read_text().splitlines()
    if re.match(r"\| `[a-z0-9_]+[ =…]*` \| (INFO|WARNING|ERROR|CRITICAL)", line)
]


def name_in(row: tuple[str, ...]) -> str:
    found = re.match(r"`([a-z0-9_]+)", row[0])
    assert found
    return found[1]


@pytest.fixture(scope="module")
def said() -> list[Said]:
    return all_said()


def test_each_line_from_warning_up_begins_with_the_name_of_its_event(said):
    nameless = [f"{one.place}: {one.text or 'cannot be followed'}" for one in said if not one.name]
    assert nameless == [], "begin these lines with a name: `name: text`"


def test_each_event_from_warning_up_has_a_row(said):
    places = {one.name: one.place for one in said}
    missing = {name: places[name] for name in places.keys() - set(map(name_in, ROWS))}
    assert missing == {}, "add a row to docs/reference/log.md: what it means, what to do"


def test_each_row_is_of_an_event(said):
    assert set(map(name_in, ROWS)) - {one.name for one in said} == set()


def test_no_event_has_two_rows():
    names = list(map(name_in, ROWS))
    assert sorted(names) == sorted(set(names))


def test_each_row_has_the_levels_that_its_lines_have(said):
    levels = defaultdict(set)
    for one in said:
        levels[one.name].add(one.level)
    for row in ROWS:
        found = levels[name_in(row)]
        if None not in found:  # else it depends on what happens
            assert row[1] == ", ".join(sorted(found, key=LEVELS.index)), name_in(row)


@pytest.mark.parametrize("row", ROWS, ids=name_in)
def test_each_row_says_what_it_means_and_what_to_do_in_few_words(row):
    _, levels, means, do = row
    assert set(levels.split(", ")) <= set(LEVELS)
    for text in (means, do):
        assert 1 <= len(re.sub(r"\(\S+\)", "", text).split()) <= 25


# -- how names are found --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ('_log.warning("a_b: of %s", x)', ["a_b"]),
        ('_log.critical("holding event %s", x)', ["holding"]),
        ('_log.error("alone")', ["alone"]),
        ('_LOG.exception("a_b of %s", x)', ["a_b"]),
        ('_log.info("ended")', []),
        ('_log.warning("the queue is gone")', [None]),
        ('_log.warning("%s is gone", x)', [None]),
        ("_log.warning(text())", [None]),
        ('other.warning("a_b: of %s", x)', [None]),
        ('_log.log(logging.INFO, "a_b")', []),
        ('_log.log(level, "a_b")', ["a_b"]),
        ('WORDS = {1: "a_b", 2: "b_c"}\n_log.error("%s: %s", WORDS[x], x)', ["a_b", "b_c"]),
        ('def f(one):\n    _log.error(one)\nf("a_b")\nf("b_c")', ["a_b", "b_c"]),
        ('def f():\n    said = "a_b" if x else "b_c"\n    _log.error(said)', ["a_b", "b_c"]),
        ('wiring.write_error("angzarr.x", "a_b", {})', ["a_b"]),
    ],
)
def test_a_name_is_found_where_it_is_a_literal_of_its_module(source, names):
    assert [one.name for one in said_in(source, "some/module.py")] == names
