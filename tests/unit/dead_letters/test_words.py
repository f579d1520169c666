"""Words are found as an obvious, slow search finds them, however they overlap."""

from __future__ import annotations

import sys

from hypothesis import example, given
from hypothesis import strategies as st

from angzarr.dead_letters.masking import MARK, SHORTEST_WORD, Words, masked

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
