"""The text of a task's arguments in its headers, as Celery writes it.

Celery's `saferepr` takes anything, and costs more than all else of a short message. Plain JSON has
the same text by `repr`, but for a few characters and what is too deep or too long to be shown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from celery.utils.saferepr import saferepr

#: What `repr` and `saferepr` may write in different ways.
_ESCAPED: Final = re.compile(r'[\\"]')
_SCALARS: Final = frozenset({str, int, float, bool, type(None)})
#: Nested deeper than this, arguments are Celery's to write: they may contain themselves.
_DEEPEST: Final = 20


def text_of(args: Sequence[Any], most: int, deepest: int | None) -> str:
    """*args*, a list or tuple of anything, by `saferepr`: *most* characters, *deepest* levels."""
    if type(args) in (list, tuple) and all(_is_plain(one, _DEEPEST) for one in args):
        return text_of_plain(args, most, deepest)
    return str(saferepr(args, most, maxlevels=deepest))


def text_of_plain(args: Sequence[Any], most: int, deepest: int | None) -> str:
    """The same for *args*, a list or tuple of pure JSON."""
    text, levels = repr(args), deepest or 0
    if sum(map(text.count, "[{(")) > levels > 0:
        text = repr(_cut(args, levels))
    if levels > 0 and len(text) < most and not _ESCAPED.search(text):
        return text
    return str(saferepr(args, most, maxlevels=deepest))


def _is_plain(value: Any, levels: int) -> bool:
    """True if *value* is pure JSON, at most *levels* deep, of no subclasses."""
    kind = type(value)
    if kind in _SCALARS:
        return True
    if not levels:
        return False
    if kind is dict:
        return all(
            type(key) is str and _is_plain(inner, levels - 1) for key, inner in value.items()
        )
    return kind is list and all(_is_plain(inner, levels - 1) for inner in value)


class _Cut(str):
    """Stands for a value that is too deep to be shown."""

    __slots__ = ()
    __repr__ = str.__str__


_CUT_LIST, _CUT_DICT = _Cut("[...]"), _Cut("{...}")


def _cut(value: Any, levels: int) -> Any:
    """*value*, pure JSON, without the values deeper than *levels*."""
    if isinstance(value, dict):
        if not levels:
            return _CUT_DICT
        return {key: _cut(inner, levels - 1) for key, inner in value.items()}
    if isinstance(value, tuple):
        return tuple(_cut(inner, levels - 1) for inner in value)  # the arguments themselves
    if isinstance(value, list):
        return [_cut(inner, levels - 1) for inner in value] if levels else _CUT_LIST
    return value
