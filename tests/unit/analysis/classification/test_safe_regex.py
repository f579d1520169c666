from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.analysis.classification.condition_kinds import expression, glob
from angzarr.errors import ConfigurationError


@pytest.mark.parametrize(
    ("pattern", "fitting", "other"),
    [
        ("orders.sync", "orders.sync", "orders.sync2"),
        ("orders.*", "orders.sync", "mail.orders.sync"),
        ("*.GiveUp", "angzarr.errors.GiveUp", "GiveUp"),
        ("HTTP_40?", "HTTP_404", "HTTP_4040"),
        ("*timed out*", "it\ntimed out\n", "timed  out"),
        ("a.c", "a.c", "abc"),
    ],
)
def test_a_star_is_any_text_and_a_question_mark_one_character(pattern, fitting, other):
    fits = glob(pattern)
    assert (fits(fitting), fits(other)) == (True, False)


def slowly(pattern, text):
    """Whether a pattern fits, by trying every place for every star."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        return any(slowly(pattern[1:], text[at:]) for at in range(len(text) + 1))
    return bool(text) and pattern[0] in {"?", text[0]} and slowly(pattern[1:], text[1:])


@given(st.text("ab*?", max_size=6), st.text("ab\n", max_size=7))
def test_a_pattern_fits_what_trying_every_place_finds(pattern, text):
    assert glob(pattern)(text) == slowly(pattern, text)


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+b", "(a|a)*b", "(a|ab)*c", "a.*b.*c", r"(a)\1", "(?=a+)b", "(a?){30}a", "(a|a)?" * 40,
        ".{0,98}.{0,98}[ab]{600}c", ".*[ab]{400}c", ".*(ab|a){3}c", r"(a)\1()", r"(?:(a)\1){0}",
    ],
)  # fmt: skip
def test_an_expression_that_a_hostile_text_could_make_slow_is_refused(pattern):
    with pytest.raises(ConfigurationError, match="could take too long"):
        expression(pattern)


@pytest.mark.parametrize(
    "pattern",
    [".*foo", r"(timeout|reset) after \d+ ?ms", "[ab]{1000}c", "(?i)timeout.*of the database"],
)
def test_an_expression_with_one_open_repeat_and_little_behind_it_is_taken(pattern):
    expression(pattern)


@pytest.mark.parametrize("pattern", ["[", "(", "a{2,1}", "[[a]"])
def test_what_is_no_expression_is_refused_in_a_sentence(pattern):
    with pytest.raises(ConfigurationError, match="not a regular expression"):
        expression(pattern)


@given(
    st.sampled_from([r"port \d{1,5}", "(?i)refused|reset", "^no .*found$", r"\bE\w{2,9}\b", "x?y"]),
    st.text(max_size=40),
)
def test_what_is_allowed_finds_what_re_finds(pattern, text):
    assert expression(pattern)(text) == (re.search(pattern, text) is not None)


def test_an_expression_sees_the_beginning_of_a_text_only():
    assert not expression("end")("x" * 5_000 + "end")
