"""What the examples with event books are asked to do, and how it is told whether all adds up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import BaseModel

from angzarr import Angzarr


class Ask(NamedTuple):
    """A command of somebody who is no saga: if it is refused, that is a dead letter."""

    command: BaseModel
    domain: str
    root: str
    #: Where the sender believes the aggregate to be.
    expected: int | None = None
    #: Whether a refusal is part of the example.
    may_be_refused: bool = False


@dataclass
class Reckoning:
    """Where everything ended, and each thing about which something is wrong, one sentence each."""

    ends: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def one_end(self, what: str, ends: Iterable[str]) -> None:
        """Count the end of *what*; to have none, or two, is a problem."""
        found = list(ends)
        self.ends.update(found[:1])
        if len(found) != 1:
            self.problems.append(f"{what} has {len(found)} ends: {', '.join(found) or 'none'}")

    def same(self, what: str, found: object, wanted: object) -> None:
        """Note a problem if what was *found* is not what is *wanted*."""
        if found != wanted:
            self.problems.append(f"{what}: {found}, and it should be {wanted}")


class Told(NamedTuple):
    """An event of a book: its type, what it is about, its data."""

    type: str
    root: str
    data: dict[str, Any]


def told(app: Angzarr, domain: str, roots: Iterable[str]) -> Iterator[Told]:
    """Yield all events of some books."""
    for root in roots:
        for event in app.book(domain, root).events:
            yield Told(event.type, root, event.data)


def roots_of(asks: Iterable[Ask], domain: str) -> list[str]:
    """Return the roots of *domain* that *asks* go to, each once."""
    return list(dict.fromkeys(ask.root for ask in asks if ask.domain == domain))
