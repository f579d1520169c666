"""Masking: take secrets out of free text, by what they are and by what they look like. Pure.

What is looked for comes out of payloads, in every spelling that it may have in a text, so the
sender of a message chooses it. A search for each word at each place can be made to take minutes.
`Words` looks for all of them at once, in one sorted list, at a cost that none of them can raise.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final, TypeAlias
from urllib.parse import quote

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
        """The places from *begin* on, in order."""
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
        """The length of the longest beginning of a word that *text* ends with, or 0."""
        for at in self._beginnings.places(text, max(0, len(text) - self._longest)):
            left = text[at:]
            index = bisect_left(self._sorted, left)
            if index < len(self._sorted) and self._sorted[index].startswith(left):
                return len(left)
        return 0


def _beyond(word: str) -> str:
    """The first text that comes after all texts that begin with *word*; it, if none does."""
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


#: What stands where something was removed.
MARK: Final = "[redacted]"
#: What stands for a text that could not be searched.
ALL_HIDDEN: Final = "[redacted whole: too much to search]"

_MARKS: Final = re.compile("|".join(map(re.escape, (MARK, ALL_HIDDEN))))
#: Rounds after which a text that still changes is hidden whole.
_MOST_ROUNDS: Final = 8


def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a person's *pattern*; raises ValueError that says what is wrong with it.

    A repetition without end inside another is refused: there are texts on which it ends in years.
    """
    try:
        found = re.compile(pattern)
        nested = _is_nested(importlib.import_module("re._parser").parse(pattern), within=False)
    except (re.error, RecursionError, OverflowError) as error:
        msg = f"{pattern!r} is not a regular expression: {error}"
        raise ValueError(msg) from error
    if nested:
        msg = f"{pattern!r} repeats a repetition, which may take for ever: write it with one + or *"
        raise ValueError(msg)
    return found


def _is_nested(parsed: Any, *, within: bool) -> bool:
    """True if a repetition without end stands in another; *parsed* is Python's own tree."""
    if isinstance(parsed, tuple) and len(parsed) == 3 and str(parsed[1]) == "MAXREPEAT":  # noqa: PLR2004 - least, most, what
        return within or _is_nested(parsed[2], within=True)
    if isinstance(parsed, tuple | list) or hasattr(parsed, "data"):
        return any(_is_nested(part, within=within) for part in parsed)
    return False


def masked(text: str, words: Words | None, patterns: Sequence[re.Pattern[str]]) -> str:
    """*text* without *words* and what *patterns* match; doing it twice changes nothing.

    A text that cannot be searched is hidden whole: one that is too long, and every one where
    *words* is None, that is, more than can be looked for.
    """
    if not text or not (patterns or words or words is None):
        return text
    for _ in range(_MOST_ROUNDS):
        if words is None or len(text) > LONGEST_TEXT:
            return ALL_HIDDEN
        marks = [found.span() for found in _MARKS.finditer(text)]
        spans = [*words.spans(text), *_of_patterns(text, patterns)]
        fresh = [span for span in spans if span[0] < span[1] and not _is_within(span, marks)]
        if not fresh:
            return text
        text = _without(text, sorted({*fresh, *marks}))
    return MARK


def _of_patterns(text: str, patterns: Iterable[re.Pattern[str]]) -> Iterator[Span]:
    for pattern in patterns:
        for found in pattern.finditer(text):
            yield found.span()


def _is_within(span: Span, marks: Sequence[Span]) -> bool:
    """True if *span* is part of one of *marks*, which are in order and apart."""
    index = bisect_right(marks, span[0], key=itemgetter(0)) - 1
    return index >= 0 and span[1] <= marks[index][1]


def _without(text: str, spans: Sequence[Span]) -> str:
    """*text* with a mark for each run of overlapping *spans*, which are in order."""
    kept: list[str] = []
    begin, end = spans[0]
    at = 0
    for one in (*spans[1:], (len(text) + 1, 0)):
        if one[0] < end:
            end = max(end, one[1])
            continue
        kept += (text[at:begin], MARK)
        at, (begin, end) = end, one
    return "".join((*kept, text[at:]))


#: Numbers of fewer digits, like texts of fewer than `SHORTEST_WORD` characters, are too often
#: something else.
FEWEST_DIGITS: Final = 6


#: Spellings that are looked for, and their characters. Whoever sends a message chooses what there
#: is to spell; so much takes half a second and some tens of megabytes.
MOST_WORDS: Final = 100_000


MOST_CHARACTERS: Final = 10_000_000


#: What every form writes as it is.
_PLAIN: Final = re.compile(r"[\w.~-]*", re.ASCII)


def words_of(values: Iterable[object]) -> Words | None:
    """The spellings of *values* in a text; None where they are more than can be looked for."""
    texts: set[str] = set()
    words: set[str] = set()
    characters = 0
    for text in (text for value in values for text in _texts_of(value)):
        if text in texts:
            continue
        texts.add(text)
        fresh = _spellings(text) - words
        words |= fresh
        characters += sum(map(len, fresh))
        if len(words) > MOST_WORDS or characters > MOST_CHARACTERS:
            return None
    return Words(words)


def _texts_of(value: object) -> Iterator[str]:
    """Yield the texts of *value* that are long enough to be known again."""
    if isinstance(value, bytes):
        yield from _texts_of(value.decode("utf-8", "replace"))
        value = repr(b'"' + value)[3:-1]
    if isinstance(value, str):
        yield from (text for text in _lines_of(value) if len(text) >= SHORTEST_WORD)
    elif not isinstance(value, bool):
        written = _written(value)
        if sum(map(str.isdigit, written)) >= FEWEST_DIGITS:
            yield written.removeprefix("-")


def _lines_of(text: str) -> Iterator[str]:
    """Yield *text* and its lines: a stack may put something before each of them."""
    for one in (text, *map(str.strip, text.splitlines())):
        yield one[:LONGEST_TEXT]
        # No text that is searched holds all of a longer one; what a cut left of it may stand there.
        if len(one) > LONGEST_TEXT:
            yield one[-LONGEST_TEXT:]


def _written(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - an int of too many digits, or somebody's own class
        return ""


def _spellings(text: str) -> set[str]:
    """*text* as it is, escaped, escaped twice as JSON within JSON is, and as in URLs."""
    if _PLAIN.fullmatch(text):
        return {text}
    escaped = {text, *(escape(text) for escape in _ESCAPES)}
    twice = {escape(one) for one in escaped for escape in _ESCAPES}
    quoted = {quoted for one in escaped for quoted in _quoted(one)}
    return escaped | twice | quoted | {again for one in quoted for again in _quoted_again(one)}


def _unquoted(write: Callable[[str], str]) -> Callable[[str], str]:
    """*write* without the quotes that it sets."""
    return lambda text: write(text)[1:-1]


def _beside(write: Callable[[str], str]) -> Callable[[str], str]:
    """*write* as it is beside a double quote, where Python escapes the single ones."""
    return lambda text: write('"' + text)[2:-1]


def _quoted(text: str) -> tuple[str, str, str]:
    """The forms of *text* by `urllib.parse`: for a path, for a part of it, for a query."""
    path = quote(text.encode("utf-8", "replace"))
    part = path.replace("/", "%2F")
    return path, part, part.replace("%20", "+")


def _quoted_again(quoted: str) -> tuple[str, str]:
    """The forms of *quoted* in a URL that is part of a URL."""
    path = quoted.replace("%", "%25").replace("+", "%2B")
    return path, path.replace("/", "%2F")


_ESCAPES: Final = (
    _unquoted(repr),
    _beside(repr),
    _unquoted(ascii),
    _beside(ascii),
    _unquoted(json.dumps),
    _unquoted(partial(json.dumps, ensure_ascii=False)),
)
