"""Words: texts that are looked for all at once, at a cost that none of them can raise. Pure.

What is looked for comes out of payloads, so whoever sends a message chooses it: a search that asks
each word at each place of a text can be made to take minutes. This one asks one sorted list.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator
from typing import Final, TypeAlias

from angzarr.dead_letters.letter import MAX_STACK

#: Words have at least so many characters, and so has what a cut leaves of one.
SHORTEST_WORD: Final = 4
#: Characters of a text that is searched: no letter of ours has more in one of its own.
LONGEST_TEXT: Final = 4 * MAX_STACK

#: What a text that was cut begins or ends with.
_CUT: Final = "[…]"

Span: TypeAlias = tuple[int, int]


class Words:
    """Finds where any of its words stands in a text, or what a cut left of one at its edges."""

    def __init__(self, words: Collection[str] = ()) -> None:
        self._all = bool(words)
        self._whole = _Whole(words)
        self._heads = _Heads(words)
        self._tails = _Heads([word[::-1] for word in words])

    def __bool__(self) -> bool:
        return self._all

    def spans(self, text: str) -> Iterator[Span]:
        """Yield spans that together cover each place of each word, wherever they overlap.

        At each place only the longest word counts: it covers the others.
        """
        yield from self._whole.spans(text)
        begin = len(_CUT) if text.startswith(_CUT) else 0
        end = len(text) - (len(_CUT) if text.endswith(_CUT) else 0)
        told = text[begin:end]
        if left := self._heads.left_at_end(told):
            yield end - left, end
        if left := self._tails.left_at_end(told[::-1]):
            yield begin, begin + left


class _Beginnings:
    """Tells where a word may begin at all: at few places, in most texts."""

    def __init__(self, words: Collection[str]) -> None:
        self._firsts = {word[0] for word in words}
        self._all = {word[:SHORTEST_WORD] for word in words}

    def places(self, text: str, begin: int = 0) -> list[int]:
        """Return the places from *begin* on, in order."""
        firsts, beginnings = self._firsts, self._all
        return [
            at
            for at, first in enumerate(text[begin:], begin)
            if first in firsts and text[at : at + SHORTEST_WORD] in beginnings
        ]


class _Whole:
    """Tells the longest word at a place with one binary search.

    The texts that begin with a word stand side by side in a sorted list, from the word up to the
    first text that is beyond all of them. Such stretches lie within each other or apart, so it is
    known beforehand which word is the longest between any two of their ends.
    """

    def __init__(self, words: Collection[str]) -> None:
        self._beginnings = _Beginnings(words)
        self._longest = max(map(len, words), default=0)
        self._ends = sorted({*words, *map(_beyond, words)})
        self._lengths = list(_lengths(self._ends, frozenset(words)))

    def spans(self, text: str) -> Iterator[Span]:
        """Yield the span of the longest word at each place."""
        for at in self._beginnings.places(text):
            index = bisect_right(self._ends, text[at : at + self._longest]) - 1
            if index >= 0 and self._lengths[index]:
                yield at, at + self._lengths[index]


class _Heads:
    """Tells with which beginning of a word a text ends."""

    def __init__(self, words: Collection[str]) -> None:
        self._beginnings = _Beginnings(words)
        self._longest = max(map(len, words), default=0)
        self._sorted = sorted(words)

    def left_at_end(self, text: str) -> int:
        """Return the length of the longest beginning of a word that *text* ends with, or 0."""
        for at in self._beginnings.places(text, max(0, len(text) - self._longest)):
            left = text[at:]
            index = bisect_left(self._sorted, left)
            if index < len(self._sorted) and self._sorted[index].startswith(left):
                return len(left)
        return 0


def _beyond(word: str) -> str:
    """Return the first text that comes after all texts that begin with *word*; it, if none does."""
    stem = word.rstrip(chr(sys.maxunicode))
    return stem[:-1] + chr(ord(stem[-1]) + 1) if stem else word


def _lengths(ends: Collection[str], words: Collection[str]) -> Iterator[int]:
    """Yield for each of *ends* the length of the longest word that texts from there begin with."""
    around: list[str] = []
    for end in ends:
        while around and not end.startswith(around[-1]):
            around.pop()
        if end in words:
            around.append(end)
        yield len(around[-1]) if around else 0
