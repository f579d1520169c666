"""Refusal: why a letter is not replayed, in one sentence."""

from __future__ import annotations


class Refusal(str):
    """A reason that stands in for what was asked of a letter."""

    __slots__ = ()


class Distrusted(Refusal):
    """A reason to doubt who wrote the letter: nothing that it says decides what becomes of it."""

    __slots__ = ()


class NoTarget(Refusal):
    """Nothing here takes the message: no such handler, no such queue."""

    __slots__ = ()
