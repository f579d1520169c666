"""Masking: take secrets out of free text, by what they are and by what they look like. Pure."""

from __future__ import annotations

import importlib
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Final

from angzarr.dead_letters.words import LONGEST_TEXT, Span, Words

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
    """Tell whether a repetition without end stands in another; *parsed* is Python's own tree."""
    if isinstance(parsed, tuple) and len(parsed) == 3 and str(parsed[1]) == "MAXREPEAT":  # noqa: PLR2004 - least, most, what
        return within or _is_nested(parsed[2], within=True)
    if isinstance(parsed, tuple | list) or hasattr(parsed, "data"):
        return any(_is_nested(part, within=within) for part in parsed)
    return False


def masked(text: str, words: Words | None, patterns: Sequence[re.Pattern[str]]) -> str:
    """Return *text* without *words* and what *patterns* match; doing it twice changes nothing.

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
    """Tell whether *span* is part of one of *marks*, which are in order and apart."""
    index = bisect_right(marks, span[0], key=itemgetter(0)) - 1
    return index >= 0 and span[1] <= marks[index][1]


def _without(text: str, spans: Sequence[Span]) -> str:
    """Return *text* with a mark for each run of overlapping *spans*, which are in order."""
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
