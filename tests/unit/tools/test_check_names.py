"""The check of names: what it refuses, and that it says the file and the cure."""

from __future__ import annotations

import pytest

import check_names
from check_names import MOST_LINES, problems

FEW = '"""A thing."""\n'


@pytest.mark.parametrize(
    ("sources", "said"),
    [
        (
            {"a/one.py": "class Thing: ...", "b/two.py": "class Thing: ..."},
            "b/two.py: the class Thing stands in a/one.py as well: rename one",
        ),
        ({"a/long.py": "x = 1\n" * (MOST_LINES + 1)}, "a/long.py: 401 lines are too many: split"),
        ({"a/running.py": FEW}, "a/running.py: a module is a noun: rename it"),
        ({"cli/a.py": '"""Tell nobody."""'}, 'cli/a.py:1: "nobody" is dialect: write a plain'),
    ],
)
def test_it_names_the_file_and_the_cure(sources, said):
    (found,) = problems(sources, {})
    assert found.startswith(said)


@pytest.mark.parametrize(
    "sources",
    [
        {"a/one.py": "class Thing: ...", "wire/two.py": "class Thing: ..."},
        {"a/one.py": "class Thing: ...\nclass Thing: ..."},
        {"a/exact.py": "x = 1\n" * MOST_LINES},
        {"a/routing.py": FEW, "a/letter_signing.py": FEW, "a/ring_buffer.py": FEW},
        {"cli/a.py": 'x = {"mended": 1}', "wire/b.py": '"""Nobody."""'},
        {"adapters/sql/migrations/ledger/r0011_waking.py": "x = 1\n" * 900},
    ],
)
def test_it_lets_pass(sources):
    assert problems(sources, {}) == []


KNOWN = {"KNOWN_LONG": {"a/one.py"}, "KNOWN_MODULES": {"a/two.py", "a/running.py"}}


def test_it_excuses_what_is_known_and_refuses_an_entry_that_is_not_needed():
    assert problems({"a/one.py": FEW, "a/running.py": FEW}, KNOWN) == [
        "KNOWN_LONG: nothing is wrong with a/one.py any more: take it out",
        "KNOWN_MODULES: nothing is wrong with a/two.py any more: take it out",
    ]


def test_the_sources_keep_it(capsys):
    assert check_names.main() == 0, capsys.readouterr().err
