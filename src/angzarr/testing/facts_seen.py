"""FactsSeen: the facts of this test, as docs/reference/facts.md lists them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

from angzarr.adapters.memory.facts import MemoryFactLog
from angzarr.facts import Fact


class FactsSeen(Sequence[Fact]):
    """All facts of this test, oldest first."""

    def __init__(self, log: MemoryFactLog) -> None:
        self._log = log

    def where(self, **wanted: Any) -> list[Fact]:
        """Return those whose fields, or whose values in `data`, are as *wanted*."""
        return [
            fact
            for fact in self._log.read()
            if all(_value(fact, name) == value for name, value in wanted.items())
        ]

    def __len__(self) -> int:
        return len(self._log.read())

    def __iter__(self) -> Iterator[Fact]:
        return iter(self._log.read())

    @overload
    def __getitem__(self, index: int) -> Fact: ...
    @overload
    def __getitem__(self, index: slice) -> list[Fact]: ...
    def __getitem__(self, index: int | slice) -> Fact | list[Fact]:
        """Return one fact, or some."""
        return self._log.read()[index]

    def __repr__(self) -> str:
        return "\n".join(f"{one.tool_id} {one.subtype} {dict(one.data)}" for one in self)


def _value(fact: Fact, name: str) -> Any:
    return getattr(fact, name) if hasattr(fact, name) else fact.data.get(name)
