"""What `make test` does a little of, and `make soak` at length.

Tests marked `soak` run in `make soak` alone, those marked `longer` in both: there they do more.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

#: Set by `make soak`.
SOAKING = os.environ.get("ANGZARR_TEST_SOAK") == "1"


def longer(number: Any, soaking: Any) -> Any:
    """How often to do it, or with what: *number* in `make test`, *soaking* in `make soak`."""
    return soaking if SOAKING else number


def soak(*values: Any) -> Any:
    """Parameters that `make test` leaves to `make soak`."""
    return pytest.param(*values, marks=pytest.mark.soak)


def each_once(*axes: Sequence[Any]) -> list[Any]:
    """All combinations of *axes* as parameters; those that add no new value are for `make soak`.

    `make test` gets every value of each axis at least once.
    """
    count = max(map(len, axes))
    chosen = {tuple(axis[n % len(axis)] for axis in axes) for n in range(count)}
    return [one if one in chosen else soak(*one) for one in product(*axes)]
