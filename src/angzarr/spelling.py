"""Spelling: what is said of a name that nothing has."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

#: How alike two names must be, from 0 to 1, for one to be taken for the other misspelt.
_ALIKE: Final = 0.75


def unknown(what: str, name: str, known: Iterable[str], cure: str, within: str = "") -> str:
    """Return the sentence that refuses *name*: with the nearest of *known*, or else the *cure*.

    *within* comes before each of these names.
    """
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=_ALIKE)
    if near:
        return f'unknown {what} "{within}{name}"; did you mean "{within}{near[0]}"?'
    return f'unknown {what} "{within}{name}": {cure}'
