"""Guarded: what a breaker stands around, a handler or one call inside it (spec D5)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeAlias

from angzarr.errors import ConfigurationError
from angzarr.resilience.idempotency import printable_part

Errors: TypeAlias = type[BaseException] | tuple[type[BaseException], ...]
#: A breaker's name, several, or names with the errors that each of them counts.
Named: TypeAlias = str | Sequence[str] | Mapping[str, Errors] | None

_MARK = "__angzarr_counted__"
_numbers = itertools.count(1)
#: Before the colon in the names of breakers of poison waves.
WAVE = "wave"
#: Characters of a name at most.
_LONGEST = 200


class Guard(NamedTuple):
    """A breaker that a handler names, and which errors it counts if they say illness."""

    name: str
    errors: tuple[type[BaseException], ...] = (BaseException,)

    def counts(self, error: BaseException | None) -> bool:
        """Tell whether *error* is one of this breaker's."""
        return isinstance(error, self.errors)


def guards(named: Named) -> tuple[Guard, ...]:
    """Return the guards that a handler names; raises ConfigurationError for what is no name."""
    if named is None:
        return ()
    if isinstance(named, str):
        return (_guard(named, BaseException),)
    if isinstance(named, Mapping):
        return tuple(_guard(name, errors) for name, errors in named.items())
    return tuple(_guard(name, BaseException) for name in dict.fromkeys(named))


def check_name(name: object, of: str = "a breaker") -> str:
    """Return *name* if it can be one: 1 to 200 printable characters, no space, no colon."""
    if not isinstance(name, str) or not _fits(name):
        msg = (
            f"{name!r} is not a name of {of}: use 1 to 200 printable characters, without spaces"
            " and colons"
        )
        raise ConfigurationError(msg)
    return name


def _fits(name: str) -> bool:
    return 0 < len(name) <= _LONGEST and name.isprintable() and not {" ", ":"} & {*name}


def keyed(name: str, key: object) -> str:
    """Return the name of the breaker that *key* has within those of *name*, ``name:key``.

    Any key will do: what cannot stand in a name is escaped, and what is too long is digested.
    Without one, None or "", it is *name* itself. Raises ConfigurationError if *name* is no name.
    """
    text = "" if key is None else str(key)
    return check_full_name(f"{name}:{printable_part(text)}" if text else name)


def check_full_name(name: str) -> str:
    """Return *name* if it is one, alone or with a key as `keyed` writes it."""
    base, colon, key = name.partition(":")
    if not colon:
        return check_name(name)
    if base == WAVE:
        msg = f"{name!r}: breakers whose names begin with {WAVE}: are those of poison waves"
        raise ConfigurationError(msg)
    return f"{check_name(base)}:{check_name(key, 'a key')}"


def next_call() -> int:
    """Return the number of a guarded call that begins; one inside it has a higher number."""
    return next(_numbers)


def mark_counted(error: BaseException, call: int) -> None:
    """Note that the breaker around *call* has counted *error*: one around that does not again."""
    with suppress(Exception):  # its class refuses attributes; then it counts twice
        setattr(error, _MARK, call)


def counted_within(error: BaseException | None, call: int) -> bool:
    """Tell whether a breaker inside *call*, so nearer to the dependency, has counted *error*."""
    with suppress(Exception):  # its class may do anything when it is asked
        mark = getattr(error, _MARK, 0)
        return isinstance(mark, int) and mark > call
    return False


def _guard(name: object, errors: Errors) -> Guard:
    given = errors if isinstance(errors, tuple) else (errors,)
    if not given or not all(_is_exception(one) for one in given):
        msg = f"breaker {name!r}: name the exception classes that it counts, not {errors!r}"
        raise ConfigurationError(msg)
    return Guard(check_name(name), given)


def _is_exception(given: object) -> bool:
    return isinstance(given, type) and issubclass(given, BaseException)
