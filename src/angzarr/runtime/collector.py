"""Keeps Python's collector of cycles from amid work that makes many objects and no cycles.

It would look through them again and again, for a tenth of the time of such work. What ends with its
last reference is freed as ever.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collections() -> Iterator[None]:
    """Collect no cycles in this process until the block ends; for bounded work."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
