"""EditView: what of an event's data whoever edits it may see. Pure.

An app hides what its own settings name. A letter that another app's worker hid more of keeps that
hidden, whoever opens it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from angzarr.dead_letters.masking import MARK
from angzarr.dead_letters.sealing import SEALED

#: What stands for a value that may not be seen.
HIDDEN: Final = (MARK, SEALED)


def hidden_as(data: Any, filed: Any) -> Any:
    """Return *data* with a mark wherever *filed*, the data as its letter was filed, has one."""
    if _is_mark(filed):
        return filed
    if isinstance(data, Mapping) and isinstance(filed, Mapping):
        return {
            name: hidden_as(value, filed[name]) if name in filed else value
            for name, value in data.items()
        }
    if isinstance(data, list) and isinstance(filed, list):
        both = [hidden_as(*pair) for pair in zip(data, filed, strict=False)]
        return both + data[len(both) :]
    return data


def touches_hidden(view: Any, given: Any) -> bool:
    """Tell whether *given* has something else where *view* has a mark.

    Also if that is the very value that is hidden: nobody may find it out by trying.
    """
    if _is_mark(view):
        return bool(given != view)
    if isinstance(view, Mapping):
        theirs = given if isinstance(given, Mapping) else {}
        return any(touches_hidden(value, theirs.get(name)) for name, value in view.items())
    if isinstance(view, list):
        longer = [*(given if isinstance(given, list) else ()), *(None for _ in view)]
        return any(touches_hidden(*pair) for pair in zip(view, longer, strict=False))
    return False


def _is_mark(value: Any) -> bool:
    return isinstance(value, str) and value in HIDDEN
