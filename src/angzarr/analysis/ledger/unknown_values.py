"""Words of the ledger that a newer release wrote: kept as they are, said once, acted on by nobody.

During a rolling upgrade workers of two releases share the ledger. The older ones must neither fail
on a status that they do not know nor take it for another one: what it stands on is left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Final, TypeVar

_log = logging.getLogger("angzarr.analysis")
_Word = TypeVar("_Word", bound=StrEnum)
_Told = TypeVar("_Told")

#: Words that are remembered to have been said; releases differ in a few.
_SAID: Final = 256
#: Characters of one that are said.
_SHOWN: Final = 80


def read_word(kind: type[_Word], text: str) -> _Word:
    """Return the word of *kind* that *text* is; one that is not among them is kept as it is."""
    try:
        word: _Word = kind(text)
    except ValueError:
        word = _newer(kind, text)
    return word


def is_known(word: StrEnum) -> bool:
    """Tell whether this release knows *word*."""
    return word.name in type(word).__members__


def of_newer(told: Mapping[_Word, _Told]) -> dict[_Word, _Told]:
    """Return what *told* says of words that this release does not know: not its to change."""
    return {word: said for word, said in told.items() if not is_known(word)}


@lru_cache(_SAID)
def say_newer(what: str) -> None:
    """Say once that the ledger has *what*, which a newer release wrote."""
    _log.warning("newer_release: the ledger has %s, which is left as it is to newer workers", what)


@lru_cache(_SAID)
def _newer(kind: type[_Word], text: str) -> _Word:
    """Make a word beside those that *kind* has, equal to *text*, and say so."""
    say_newer(f"the {kind.__name__} {text[:_SHOWN]!r}")
    word = str.__new__(kind, text)
    word._name_, word._value_ = "", text
    return word
