from __future__ import annotations

import json
import re
import sys
import traceback
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from angzarr.dead_letters import masking
from angzarr.dead_letters.letter import MAX_MESSAGE, cut_message, cut_stack
from angzarr.dead_letters.masking import (
    ALL_HIDDEN,
    LONGEST_TEXT,
    MARK,
    SHORTEST_WORD,
    Words,
    compiled,
    masked,
    words_of,
)

values = st.text(min_size=4, max_size=12) | st.integers(100_000) | st.binary(min_size=4, max_size=9)
few_patterns = st.lists(
    st.sampled_from(["redacted", r"\w+", "^.", "....", "x*", r"key=\S+ \w+", r"[^a]", r"\]|\["]),
    max_size=3,
)


@given(st.lists(st.text(min_size=4, max_size=9), min_size=1, max_size=4), st.text(max_size=40))
def test_no_removed_text_is_left(secrets, around):
    text = around.join(["", *secrets, ""])
    hidden = masked(text, words_of(secrets), ())
    assert not [one for one in secrets if one in hidden.replace(MARK, "")]


@given(st.text(max_size=60), st.lists(values, max_size=3), few_patterns)
@example("abcdef", [], ["...."])
@example("[redacted] and redacted", ["redacted"], [])
def test_masking_twice_changes_nothing(text, secrets, patterns):
    words, found = words_of(secrets), [compiled(one) for one in patterns]
    once = masked(text, words, found)
    assert masked(once, words, found) == once


@given(st.text(alphabet="abc ", max_size=60))
def test_text_without_a_secret_is_unchanged(text):
    assert masked(text, words_of(["hunter2", 123_456]), [compiled("Bearer .+")]) == text


@pytest.mark.parametrize(
    "spell", [repr, json.dumps, ascii, quote_plus, lambda text: f"https://x/?p={quote_plus(text)}&"]
)
@pytest.mark.parametrize("secret", ['it\'s "so"', "a\nb\tc", "p&ss wörd/1", "\\back\\slash"])
def test_a_secret_is_found_however_it_is_spelled(spell, secret):
    hidden = masked(f"refused: {spell(secret)}", words_of([secret]), ())
    assert MARK in hidden
    for part in re.findall(r"\w{3,}", secret):
        assert part not in hidden


def test_numbers_of_six_digits_are_secrets_and_years_are_not():
    words = words_of([4111111111111111, -123_456, 2026, 12345.678, True])
    assert masked("4111111111111111 in 2026: -123456, 12345.678, True", words, ()) == (
        f"{MARK} in 2026: -{MARK}, {MARK}, True"
    )


#: What quotes, escapes or spaces make of a secret depends on what is in it.
ODD = [
    'pa"ss word1',
    "it's\\so",
    "grüße/123",
    "l1ne\nl2secret",
    "a'b\"c+d&e",
    "\ud800half",
]


@pytest.mark.parametrize("inner", [str, repr, json.dumps, quote, quote_plus])
@pytest.mark.parametrize("outer", [repr, ascii, json.dumps, quote, quote_plus])
@pytest.mark.parametrize("secret", ODD)
def test_a_secret_is_found_where_its_text_is_part_of_another(secret, inner, outer):
    data = {"password": secret, "by": 'a "b" and it\'s c'}
    text = outer(inner(json.dumps(data) if inner in (quote, quote_plus) else data))
    hidden = masked(f"KeyError: {text}", words_of([secret]), ())
    for part in re.findall(r"[a-z0-9]{3,}", secret):
        assert part not in hidden.replace("password", "")


def test_each_line_of_a_secret_is_hidden_where_a_stack_sets_something_before_it():
    key = "-----BEGIN KEY-----\n  MIIEvSECRET1\r\nSECRET2+/=\n-----END KEY-----\n"
    try:
        raise ExceptionGroup("two failed", [ValueError(f"bad key {key}")])
    except ExceptionGroup as error:
        stack = "".join(traceback.format_exception(error))
    assert "| SECRET2" in stack
    assert "SECRET" not in masked(stack, words_of([key]), ())


def test_a_secret_is_hidden_without_the_space_around_it():
    assert masked("no 'hunter2!' here", words_of([" hunter2!\n"]), ()) == f"no '{MARK}' here"


@pytest.mark.parametrize("limit", ["MOST_WORDS", "MOST_CHARACTERS"])
def test_text_is_hidden_whole_where_more_was_removed_than_can_be_looked_for(limit, monkeypatch):
    monkeypatch.setattr(masking, limit, 20)
    assert masked("no secret-3", words_of(["secret-3"]), ()) == f"no {MARK}"
    many = words_of(f"secret-{number}" for number in range(21))
    assert masked("no secret-3", many, ()) == ALL_HIDDEN
    assert masked("", many, ()) == ""


def test_a_text_that_is_too_long_to_search_is_hidden_whole():
    hide = [compiled("hunter2")]
    assert masked("x" * (LONGEST_TEXT + 1), words_of(["hunter2"]), ()) == ALL_HIDDEN
    assert masked("x" * (LONGEST_TEXT + 1), Words(), hide) == ALL_HIDDEN
    assert masked("x" * LONGEST_TEXT, words_of(["hunter2"]), hide) == "x" * LONGEST_TEXT
    assert masked("x" * (LONGEST_TEXT + 1), Words(), ()) == "x" * (LONGEST_TEXT + 1)


def test_what_a_cut_left_of_a_secret_longer_than_any_text_is_hidden():
    words = words_of([f"begin{'-' * LONGEST_TEXT * 2}the-end"])
    assert masked("no begin-----", words, ()) == f"no {MARK}"
    assert masked("---the-end failed", words, ()) == f"{MARK} failed"


def test_what_is_hidden_whole_stays_as_it_is():
    hide = [compiled(r"\w+")]
    assert masked(ALL_HIDDEN, words_of(["redacted", "search"]), hide) == ALL_HIDDEN


@pytest.mark.parametrize("left", range(4, 12))
def test_a_secret_that_a_cut_went_through_is_hidden(left):
    words = words_of(["abcdefghijkl"])
    assert masked(f"failed with {'abcdefghijkl'[:left]}", words, ()) == f"failed with {MARK}"
    assert masked(f"{'abcdefghijkl'[-left:]} failed", words, ()) == f"{MARK} failed"


def test_a_secret_is_hidden_where_a_letter_cut_it_and_said_so():
    words = words_of(["hunter-two-" * 3])
    long = "x" * (MAX_MESSAGE - 13) + "hunter-two-" * 9
    assert "hunter" not in masked(cut_message(long), words, ())
    assert "two-" not in masked(cut_stack("hunter-two-" * 3000), words, ())


def test_what_a_pattern_matches_is_hidden():
    hide = [compiled(r"Bearer \S+"), compiled(r"\b(?:\d[ -]?){13,19}\b")]
    assert masked("401 for Bearer ab.c-d, card 4111 1111 1111 1111!", Words(), hide) == (
        f"401 for {MARK} card {MARK}!"
    )


def test_a_match_that_reaches_beyond_a_mark_is_hidden_whole():
    assert masked(f"key={MARK} rest", Words(), [compiled(r"key=\S+ \w+")]) == MARK


@pytest.mark.parametrize("pattern", ["(", "[a", "*a", "(?P<n", "a{2,1}"])
def test_what_is_no_regular_expression_is_refused(pattern):
    with pytest.raises(ValueError, match="is not a regular expression"):
        compiled(pattern)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a*)*", "(?:x(a|b)*){2,}", "((ab)+c?)+"])
def test_a_repeated_repetition_is_refused(pattern):
    with pytest.raises(ValueError, match="repeats a repetition"):
        compiled(pattern)


@pytest.mark.parametrize(
    "pattern", [r"Bearer \S+", "a+b+", r"(?:\d[ -]?){13,19}", "(ab)+", "(a?)+"]
)
def test_a_harmless_repetition_is_taken(pattern):
    assert compiled(pattern).pattern == pattern


#: Few characters, so that words overlap and lie within each other; one has none beyond it.
letters = st.text(alphabet="ab" + chr(sys.maxunicode), min_size=SHORTEST_WORD, max_size=9)
some_words = st.sets(letters, max_size=6)


def slowly_found(text: str, words: set[str]) -> set[int]:
    """Return the characters of *text* that are part of a word, or of what a cut left of one."""
    found: set[int] = set()
    for begin in range(len(text)):
        for end in range(begin + SHORTEST_WORD, len(text) + 1):
            part = text[begin:end]
            whole = part in words
            head = end == len(text) and any(word.startswith(part) for word in words)
            tail = begin == 0 and any(word.endswith(part) for word in words)
            if whole or head or tail:
                found.update(range(begin, end))
    return found


def texts_of(words: set[str]) -> st.SearchStrategy[str]:
    parts = st.sampled_from(sorted(words)) if words else st.nothing()
    return st.lists(parts | st.text("ab" + chr(sys.maxunicode), max_size=5), max_size=6).map(
        "".join
    )


@given(some_words.flatmap(lambda words: st.tuples(st.just(words), texts_of(words))))
@example(({"aaaa", "aaaaaab", "aabaa"}, "aaaaaaaabaaaa"))
@example(({"abab", "baba", "ababab"}, "xbabababx"))
@example(({"abcd", "bcde"}, "abcde"))
@example(({chr(sys.maxunicode) * 4}, chr(sys.maxunicode) * 6))
def test_what_is_found_is_what_a_slow_search_finds(case):
    words, text = case
    found = {at for begin, end in Words(words).spans(text) for at in range(begin, end)}
    assert found == slowly_found(text, words)


@given(some_words.flatmap(lambda words: st.tuples(st.just(words), texts_of(words))))
def test_no_word_is_left_whatever_overlaps(case):
    words, text = case
    shown = masked(text, Words(words), ())
    assert not [word for word in words for part in shown.split(MARK) if word in part]


def test_at_most_one_span_a_place_whatever_the_words_are():
    words = {"a" * length for length in range(SHORTEST_WORD, 1000)}
    text = "a" * 16_000
    assert len(list(Words(words).spans(text))) <= len(text) + 2


def test_without_words_nothing_is_found():
    assert not Words()
    assert not list(Words().spans("abcd"))
