"""Types of columns: times in UTC, and texts as PostgreSQL can store and index them.

Where many rows are copied (`statements.insert_rows`), `write_all` makes a whole column at once what
it takes: nearly every text is plain, and a batch of letters has ten thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import DateTime, Dialect, Text, TypeDecorator

#: PostgreSQL indexes values of up to 2,704 bytes; a character takes up to four.
LONGEST_NAME: Final = 500


class UtcTime(TypeDecorator[datetime]):
    """An aware time; SQLite keeps it without its zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002 - SQLAlchemy's signature
        """*value* in UTC."""
        return value.astimezone(UTC) if value is not None else None

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002 - SQLAlchemy's signature
        """The stored time, aware again."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)

    def write_all(self, values: Sequence[datetime | None]) -> Sequence[datetime | None]:
        """*values* in UTC."""
        return [one if one is None or one.tzinfo is UTC else one.astimezone(UTC) for one in values]


class ValidText(TypeDecorator[str]):
    """Any string, without what PostgreSQL refuses: NUL and lone surrogates."""

    impl = Text
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], str | None]:  # noqa: ARG002 - SQLAlchemy's signature
        """The function that marks a character that cannot be stored."""
        return _valid

    def write_all(self, values: Sequence[Any]) -> Sequence[str | None]:
        """*values* as they can be stored."""
        texts = _texts(values)
        return texts if _are_plain(set(texts)) else list(map(_valid, texts))


class Name(ValidText):
    """A text that is looked for: cut so that it can be indexed; the letter keeps the whole."""

    impl = Text
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], str | None]:  # noqa: ARG002 - the same
        """The function that does so, and cuts the text."""
        return _name_of

    def write_all(self, values: Sequence[Any]) -> Sequence[str | None]:
        """*values* as they can be stored, and cut."""
        texts = _texts(values)
        different = set(texts)  # often one handler, one error
        longest = max(map(len, filter(None, different)), default=0)
        if longest <= LONGEST_NAME and _are_plain(different):
            return texts
        return list(map(_name_of, texts))


#: What a column of texts may hold as it is: a word of an enum is made the text that it is.
_TEXTS: Final = frozenset({str, type(None)})


def _texts(values: Sequence[Any]) -> Sequence[str | None]:
    if _TEXTS.issuperset(map(type, values)):
        return values
    return [None if value is None else str(value) for value in values]


def _are_plain(texts: Collection[str | None]) -> bool:
    """True if all of *texts* are ASCII without NUL."""
    joined = "".join(filter(None, texts))
    return joined.isascii() and "\x00" not in joined


def _valid(value: Any) -> str | None:
    return valid_text(str(value)) if value is not None else None


def _name_of(value: Any) -> str | None:
    return stored_name(str(value)) if value is not None else None


def stored_name(name: str) -> str:
    """*name* as a column of names keeps it."""
    return valid_text(name)[:LONGEST_NAME]


def valid_text(text: str) -> str:
    """*text* with a mark where PostgreSQL cannot store a character."""
    if text.isascii() and "\x00" not in text:
        return text
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
