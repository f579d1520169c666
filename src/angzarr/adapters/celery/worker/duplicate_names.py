"""Duplicates: two things under one name, which are one thing if its module was imported twice."""

from __future__ import annotations

import inspect
import warnings
from typing import Any, Final

from celery.app.base import caller_stacklevel
from celery.exceptions import DuplicateTaskNameWarning

RENAME: Final = "rename one, or pass name=…"


def is_imported_again(first: Any, again: Any) -> bool:
    """Tell whether two functions, or two classes, come from one place in one file.

    Their module was reloaded then, or imported under two names. What a function makes anew at each
    call is another one each time.
    """
    one, other = inspect.unwrap(first), inspect.unwrap(again)
    named = getattr(one, "__qualname__", "<")
    if named != getattr(other, "__qualname__", None) or "<" in named:
        return False
    place = source_of(one)
    return place is not None and place == source_of(other)


def source_of(given: Any) -> str | None:
    """Return file and line of a function, or of the first that a class has."""
    found = list(vars(given).values()) if isinstance(given, type) else [given]
    for one in found:
        code = getattr(getattr(one, "__func__", one), "__code__", None)
        if code is not None:
            return f"{code.co_filename}:{code.co_firstlineno}"
    return None


def warn_once(app: Any, name: str, first: Any, again: Any) -> None:
    """Say that what was registered first stays, once a name, as Celery's warning is said."""
    warned: set[str] = app._duplicate_task_names_warned  # noqa: SLF001 - Celery's own
    if name in warned:
        return
    warned.add(name)
    modules = " and as ".join(dict.fromkeys((first.__module__, again.__module__)))
    msg = (
        f"{name!r} was imported twice, as {modules}: what was registered first stays; import it"
        " once, by one name, and restart the process after a change"
    )
    warnings.warn(DuplicateTaskNameWarning(msg), stacklevel=caller_stacklevel())


def twice(name: str, first: Any, second: Any) -> str:
    """Return what is said of two functions of one name; it names each of them once."""
    one, other = (getattr(given, "__qualname__", repr(given)) for given in (first, second))
    here, there = (source_of(inspect.unwrap(given)) or "?" for given in (first, second))
    if one == other:
        return f"{name!r} is the name of two functions {one}, {here} and {there}: {RENAME}"
    return f"{name!r} is the name of {one} ({here}) and of {other} ({there}): {RENAME}"
