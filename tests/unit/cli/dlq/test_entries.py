from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from angzarr.cli.dlq.entries import LONGEST, Abridged

LONG = "x" * (LONGEST + 1)


def test_a_message_is_cut_and_what_stands_around_it_stays():
    assert Abridged(LONG)(f"a bug: {LONG}; it waits") == f"a bug: {'x' * LONGEST}…; it waits"


def test_a_text_that_was_cut_itself_is_cut_further():
    assert Abridged("x" * 900)("bug: " + "x" * 500 + "…") == f"bug: {'x' * LONGEST}…"


def test_a_short_message_stays_and_lines_become_one():
    assert Abridged("a\n\tb")("E: a\n\tb") == "E: a b"


def test_a_text_that_says_something_else_stays_whole():
    assert Abridged(LONG)("y" * 300) == "y" * 300


@given(st.text(), st.text(), st.text())
def test_it_is_one_line_and_never_much_longer(message, before, after):
    text = before + message + after
    assert len(Abridged(message)(text)) <= len(text) + 1
