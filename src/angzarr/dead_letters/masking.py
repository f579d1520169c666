"""Masking: take secrets out of free text, by what they are and by what they look like. Pure."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import quote, quote_plus

#: What stands where something was removed.
MARK: Final = "[redacted]"
#: Shorter text and numbers of fewer digits are too often something else.
SHORTEST_TEXT: Final = 4
FEWEST_DIGITS: Final = 6

#: What a text that was cut begins or ends with.
_CUT: Final = "[…]"
#: Rounds after which a text that still changes is hidden whole.
_MOST_ROUNDS: Final = 8

_Span: TypeAlias = tuple[int, int]


def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a person's *pattern*; raises ValueError that says what is wrong with it.

    A repetition without end inside another is refused: there are texts on which it ends in years.
    """
    try:
        found = re.compile(pattern)
        nested = _is_nested(importlib.import_module("re._parser").parse(pattern), within=False)
    except (re.error, RecursionError, OverflowError) as error:
        msg = f"{pattern!r} is no regular expression: {error}"
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


def words_of(values: Iterable[object]) -> frozenset[str]:
    """Return how *values*, taken from a payload, may stand in a text."""
    return frozenset(word for value in values for word in _forms(value))


def masked(text: str, words: Iterable[str], patterns: Sequence[re.Pattern[str]]) -> str:
    """Return *text* without *words* and what *patterns* match; doing it twice changes nothing."""
    words = tuple(words)
    if not text or not (words or patterns):
        return text
    for _ in range(_MOST_ROUNDS):
        marks = [found.span() for found in re.finditer(re.escape(MARK), text)]
        spans = [*_of_words(text, words), *_of_patterns(text, patterns)]
        fresh = [span for span in spans if span[0] < span[1] and not _is_within(span, marks)]
        if not fresh:
            return text
        text = _without(text, sorted({*fresh, *marks}))
    return MARK


def _forms(value: object) -> Iterator[str]:
    if isinstance(value, bytes):
        yield from _forms(value.decode("utf-8", "replace"))
        value = repr(value)[2:-1]
    if isinstance(value, str):
        if len(value) >= SHORTEST_TEXT:
            yield from _spellings(value)
    elif not isinstance(value, bool):
        written = _written(value)
        if sum(map(str.isdigit, written)) >= FEWEST_DIGITS:
            yield written.removeprefix("-")


def _written(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - an int of too many digits, or somebody's own class
        return ""


def _spellings(text: str) -> set[str]:
    """Return *text* as it is, as Python and JSON write it within quotes, and as URLs do."""
    plain = text.encode("utf-8", "replace").decode()
    return {
        text,
        repr(text)[1:-1],
        ascii(text)[1:-1],
        json.dumps(text)[1:-1],
        json.dumps(text, ensure_ascii=False)[1:-1],
        quote(plain, safe=""),
        quote_plus(plain, safe=""),
    }


def _of_words(text: str, words: Iterable[str]) -> Iterator[_Span]:
    begin = len(_CUT) if text.startswith(_CUT) else 0
    end = len(text) - (len(_CUT) if text.endswith(_CUT) else 0)
    for word in words:
        at = text.find(word)
        while at >= 0:
            yield at, at + len(word)
            at = text.find(word, at + 1)
        yield from _at_edges(text, word, begin, end)


def _at_edges(text: str, word: str, begin: int, end: int) -> Iterator[_Span]:
    """Yield what is left of *word* where the text was cut in the midst of it."""
    head, tail = word[:SHORTEST_TEXT], word[-SHORTEST_TEXT:]
    at = text.find(head, max(begin, end - len(word)), end)
    while at >= 0:
        if word.startswith(text[at:end]):
            yield at, end
            break
        at = text.find(head, at + 1, end)
    at = text.rfind(tail, begin, begin + len(word))
    while at >= 0:
        if word.endswith(text[begin : at + len(tail)]):
            yield begin, at + len(tail)
            break
        at = text.rfind(tail, begin, at + len(tail) - 1)


def _of_patterns(text: str, patterns: Iterable[re.Pattern[str]]) -> Iterator[_Span]:
    for pattern in patterns:
        for found in pattern.finditer(text):
            yield found.span()


def _is_within(span: _Span, marks: Iterable[_Span]) -> bool:
    return any(mark[0] <= span[0] and span[1] <= mark[1] for mark in marks)


def _without(text: str, spans: Sequence[_Span]) -> str:
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
