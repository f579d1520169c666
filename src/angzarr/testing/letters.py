"""DeadLetters: what this test's handlers could not handle, as values that read well."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, overload

from angzarr.adapters.memory.dead_letters import MemoryDeadLetterQueue
from angzarr.dead_letters.letter import DeadLetter
from angzarr.dead_letters.queue import Receipt
from angzarr.dead_letters.record import record_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """One dead letter; absent texts are empty. `full` is all of it, None where it is unreadable."""

    handler: str
    event_id: str
    event_type: str
    domain: str
    #: ``refused``, ``exhausted``, …: docs/reference/dead-letters.md.
    reason: str
    #: One sentence for people.
    explanation: str
    attempts: int = 0
    error_type: str = ""
    error_message: str = ""
    error_code: str = ""
    category: str = ""
    replay: int = 0
    data: Any = None
    id: str = field(default="", repr=False)
    full: DeadLetter | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        runs = "" if self.attempts == 1 else f" after {self.attempts} runs"
        return (
            f"<{self.reason} letter of {self.handler or 'nobody'} for {self.event_type}"
            f" {self.event_id!r}{runs}: {self.explanation}>"
        )


def letter_of(receipt: Receipt) -> Letter:
    """Return the letter in *receipt*, readable or not."""
    found = receipt.letter
    if found is None:
        return Letter(
            handler="", event_id="", event_type="", domain=receipt.domain, reason="unreadable",
            explanation=receipt.problem, id=record_id(receipt.domain, receipt.raw, receipt.record),
        )  # fmt: skip
    event = found.event
    return Letter(
        handler=found.handler,
        event_id=event.id if event else "",
        event_type=(event.type if event else "") or found.message.task,
        domain=found.domain,
        reason=found.reason.value,
        explanation=found.explanation,
        attempts=found.attempts,
        error_type=found.error_type,
        error_message=found.error_message,
        error_code=found.error_code,
        category=found.category,
        replay=found.replay,
        data=event.data if event else None,
        id=found.id,
        full=found,
    )


class DeadLetters(Sequence[Letter]):
    """All letters of this test, the first first; those that the analysis has taken stay in it."""

    def __init__(self, queue: MemoryDeadLetterQueue) -> None:
        self._queue = queue
        self._seen: dict[tuple[str, int], Letter] = {}

    def note(self) -> list[Letter]:
        """Look for new letters, and return all that there ever were."""
        for receipt in self._queue.look():
            letter = letter_of(receipt)
            self._seen.setdefault((letter.id, letter.replay), letter)
        return list(self._seen.values())

    def where(self, **wanted: Any) -> list[Letter]:
        """Return those whose fields are as *wanted*, or for which a function says so.

        Raises TypeError for a field that letters do not have.
        """
        return where(Letter, self.note(), wanted)

    def only(self, **wanted: Any) -> Letter:
        """Return the one letter whose fields are as *wanted*; AssertionError if it is not one."""
        found: Letter = only(Letter, self.note(), ("dead letter", "dead letters"), wanted)
        return found

    def __len__(self) -> int:
        return len(self.note())

    def __iter__(self) -> Iterator[Letter]:
        return iter(self.note())

    @overload
    def __getitem__(self, index: int) -> Letter: ...
    @overload
    def __getitem__(self, index: slice) -> list[Letter]: ...
    def __getitem__(self, index: int | slice) -> Letter | list[Letter]:
        """Return one letter, or some."""
        return self.note()[index]

    def __eq__(self, other: object) -> bool:
        return self.note() == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self.note())


def only(
    kind: type[Any],
    found: Sequence[Any],
    what: tuple[str, str],
    wanted: dict[str, Any],
    show: Callable[[Any], str] = repr,
) -> Any:
    """Return the one of *found* that is as *wanted*; else AssertionError lists what there is."""
    fitting = where(kind, found, wanted)
    if len(fitting) == 1:
        return fitting[0]
    asked = ", ".join(f"{name}={value!r}" for name, value in wanted.items())
    said = f" with {asked}" if asked else ""
    shown = fitting or found
    listed = "".join(f"\n  {show(one)}" for one in shown) or " none at all"
    head = f"{len(fitting)} {what[1]}{said}, not one {what[0]}; " + (
        "they are:" if fitting else "there are:"
    )
    raise AssertionError(head + listed)


def where(kind: type[Any], found: Sequence[Any], wanted: dict[str, Any]) -> list[Any]:
    """Return those of *found*, each a *kind*, that are as *wanted*; TypeError for no field of it.

    Also where nothing was found: ``where(reson="refused") == []`` would hold for ever.
    """
    known = {one.name for one in fields(kind)} | set(vars(kind))
    for name in wanted:
        if name not in known:
            msg = f"{kind.__name__} has no field {name!r}"
            raise TypeError(msg)
    return [one for one in found if all(_fits(one, *field) for field in wanted.items())]


def _fits(one: Any, name: str, wanted: Any) -> bool:
    value = getattr(one, name)
    if callable(wanted):
        return bool(wanted(value))
    return bool(value == wanted)
