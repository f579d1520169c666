"""View of chains: what the demo prints of an example at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from angzarr.events.event import Event
from angzarr.sagas.log import Case, RejectionStatus
from angzarr.sagas.saga import ProcessManager

#: The most problems that are printed.
_MOST: Final = 50
#: Characters of an id.
_ID: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """How a run ended, in the example's own words and in the framework's."""

    commands: int
    ends: Counter[str]
    cases: Counter[RejectionStatus]
    #: Dead letters by what became one, and why.
    letters: Counter[str]
    story: Sequence[str]
    problems: Sequence[str]

    @property
    def adds_up(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def lines(self) -> list[str]:
        """Return what is printed at the end."""
        return summary(self)


def summary(said: Balance) -> list[str]:
    """Return the lines that tell how everything ended."""
    lines = [f"{said.commands} commands led to:", *_counted(said.ends)]
    lines += ["Commands of sagas that were rejected:", *_counted(said.cases)]
    lines += ["Dead letters, all of them meant:" if said.adds_up else "Dead letters:"]
    lines += [*_counted(said.letters), *said.story]
    if said.adds_up:
        return [*lines, "Everything adds up."]
    more = len(said.problems) - _MOST
    rest = [f"  … and {more} more"] if more > 0 else []
    shown = [f"  {problem}" for problem in said.problems[:_MOST]]
    return [*lines, f"DOES NOT ADD UP ({len(said.problems)}):", *shown, *rest]


def _counted(counts: Mapping[Any, int]) -> list[str]:
    """Return a line for each word, with its count."""
    if not counts:
        return ["       0"]
    return [f"  {counts[word]:6}  {word}" for word in sorted(counts)]


def story(app: Any, cases: Sequence[Case], command: str) -> list[str]:
    """Return one chain line by line: the first whose *command* was rejected and compensated."""
    told = [
        case
        for case in reversed(cases)
        if case.status is RejectionStatus.COMPENSATED and case.command_type == command
    ]
    return ["One of the chains:", *_chain(app, told[0])] if told else []


def _chain(app: Any, case: Case) -> Iterator[str]:
    events = app.book(*case.source).events
    first = case.first_event or 0
    is_process = issubclass(app.aggregates[case.source.domain], ProcessManager)
    cause = events[0 if is_process else case.source_sequence]
    name = app.run.id
    yield _line(name, "event", str(case.source), cause.type, _data(cause))
    said = f"{_short(case.command_id)}, sent by {case.saga}"
    yield _line(name, "command", str(case.target), case.command_type, said)
    yield _line(name, "rejection", str(case.target), _short(case.id), case.reason)
    for event in events[first : first + case.event_count]:
        yield _line(name, "compensation", str(case.source), event.type, _data(event))


def _line(run_id: str, step: str, where: str, what: str, said: str) -> str:
    return f"  {step:12} {where:24} {what:18} {said}".replace(f"{run_id}-", "")


def _data(event: Event) -> str:
    return ", ".join(f"{name} {value}" for name, value in event.data.items())


def _short(id: str) -> str:
    try:
        return UUID(id).hex[:_ID]
    except ValueError:
        return id
