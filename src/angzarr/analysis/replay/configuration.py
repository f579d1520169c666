"""What a replay with other versions of configurations would change, for people. Pure.

A person who replays with the newest versions sees before it is sent which they are, and how their
values differ from those that the events were pinned to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from angzarr.analysis.ledger.failure import Failure
from angzarr.analysis.replay.edit import Difference, differences
from angzarr.configuration.version import ConfigurationVersion
from angzarr.dead_letters.letter import DeadLetter
from angzarr.events.headers import pins_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationDifference:
    """One configuration that events are pinned to in another version than they would see."""

    id: str
    before: str
    after: str
    #: How many of the events that were looked at.
    events: int
    #: How the values differ; None: the version that they are pinned to is gone.
    changes: tuple[Difference, ...] | None

    def lines(self) -> Iterator[str]:
        """What it says to people, line by line."""
        yield f"configuration {self.id}: {self.before} → {self.after}"
        if self.changes is None:
            yield f"  version {self.before} is not in the store any more"
        elif not self.changes:
            yield "  the same value"
        else:
            yield from (f"  {one}" for one in self.changes)


def versions_in(failure: Failure) -> dict[str, str]:
    """The versions that *failure* is pinned to, by configuration; they may be anything."""
    return pins_of(failure.message.headers) if isinstance(failure, DeadLetter) else {}


def configuration_differences(
    failures: Iterable[Failure],
    chosen: Mapping[str, str],
    get: Callable[[str, str], ConfigurationVersion | None],
) -> list[ConfigurationDifference]:
    """The differences of *chosen*, version by configuration, from what *failures* are pinned to."""
    counted: dict[tuple[str, str, str], int] = {}
    for failure in failures:
        for name, version in versions_in(failure).items():
            if (after := chosen.get(name, version)) != version:
                key = (name, version, after)
                counted[key] = counted.get(key, 0) + 1
    return [
        ConfigurationDifference(
            id=name, before=before, after=after, events=events,
            changes=_changes(get(name, before), get(name, after)),
        )
        for (name, before, after), events in sorted(counted.items())
    ]  # fmt: skip


def _changes(
    before: ConfigurationVersion | None, after: ConfigurationVersion | None
) -> tuple[Difference, ...] | None:
    if before is None or after is None:
        return None
    return tuple(differences(before.value, after.value))
