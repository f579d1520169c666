"""Configurations of an entry: what its letter is pinned to, and what the newest versions change.

The API, and what the page of a replay shows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from angzarr.analysis.ledger.entry import EntryDetail
from angzarr.analysis.replay.configuration import (
    ConfigurationDifference,
    configuration_differences,
    versions_in,
)
from angzarr.configuration.version import LONGEST_VERSION, ConfigurationVersion, is_name
from angzarr.dashboard.api.route import ServicesHere, acting, answer, problems, seeing
from angzarr.dashboard.api.shapes import EntryId, Shape
from angzarr.dashboard.problem import Problem, asking
from angzarr.dashboard.services import CONFIGURATIONS, Services, detail_of
from angzarr.errors import ConfigurationError, Unavailable
from angzarr.runtime.json_bounds import Bounds
from angzarr.runtime.strict_json import read_strictly

see = seeing("entries")
act = acting("entries")

#: What people call the store.
#: What the choice of versions in a form parses to at most.
_VERSIONS: Final = Bounds(nodes=2_000, depth=1)


class ValueChange(Shape):
    """One change, at a JSON pointer; values as JSON, empty where there is none."""

    pointer: str
    before: str
    after: str


class ConfigurationChange(Shape):
    """A configuration whose newest version is another; `changes` null: the pinned one is gone."""

    id: str
    before: str
    after: str
    changes: list[ValueChange] | None


class EntryConfigurationShape(Shape):
    """The versions that an entry's letter is pinned to, and the newest, for the plan of a job."""

    pinned: dict[str, str]
    newest: dict[str, str]
    differences: list[ConfigurationChange]


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryConfiguration:
    """Versions by configuration: what a letter is pinned to, and what is current now."""

    pinned: dict[str, str]
    newest: dict[str, str]
    differences: list[ConfigurationDifference]


def configuration_of(services: Services, details: Iterable[EntryDetail]) -> EntryConfiguration:
    """What the newest versions would change for the next replay of entries.

    Asks nothing where no letter is pinned to anything. Raises ConfigurationError, Problem.
    """
    failures = [detail.unanswered.letter or detail.failure for detail in details]
    pinned = {name: one for failure in failures for name, one in versions_in(failure).items()}
    if not pinned:
        return EntryConfiguration(pinned={}, newest={}, differences=[])
    with asking(CONFIGURATIONS):
        store = services.configurations()
        current = {name: store.current(name) for name in pinned if is_name(name)}
        newest = {name: one.version for name, one in current.items() if one is not None}

        def get(name: str, version: str) -> ConfigurationVersion | None:
            known = is_name(name) and is_name(version, LONGEST_VERSION)
            return store.get(name, version) if known else None

        found = configuration_differences(failures, newest, get)
    return EntryConfiguration(pinned=pinned, newest=newest, differences=found)


@see.get(
    "/entries/{entry_id}/configuration",
    response_model=EntryConfigurationShape,
    responses=problems({404: "There is no such entry."}),
)
def compare_configuration(services: ServicesHere, entry_id: EntryId) -> Response:
    """Tell which versions of configurations an entry is pinned to, and how the newest differ."""
    return answer(_json(configuration_of(services, [detail_of(services, entry_id)])))


def _json(found: EntryConfiguration) -> dict[str, Any]:
    differences = [
        {
            "id": one.id,
            "before": one.before,
            "after": one.after,
            "changes": one.changes and [change._asdict() for change in one.changes],
        }
        for one in found.differences
    ]
    return {"pinned": found.pinned, "newest": found.newest, "differences": differences}


def shown_configuration(
    services: Services, details: Iterable[EntryDetail], form: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What the page of a replay shows: differences, and what its *form* sends back, or has sent.

    A store that is away, or is not there, is said on the page: as pinned can still be replayed.
    """
    try:
        found = configuration_of(services, details)
    except (Problem, ConfigurationError, Unavailable) as error:
        return {"versions": [], "newest": "", "versions_problem": str(error), "chosen": False}
    return {
        "versions": found.differences,
        "newest": json.dumps(found.newest, sort_keys=True),
        "versions_problem": "",
        "chosen": bool((form or {}).get("config")),
    }


def chosen_in(form: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """The versions that a person ticked, as the page showed them; none: as pinned."""
    try:
        said = read_strictly(form.get("config") or "{}", _VERSIONS)
        chosen = tuple(sorted((name, version) for name, version in said.items()))
        fits = all(is_name(name) and is_name(one, LONGEST_VERSION) for name, one in chosen)
    except (ValueError, TypeError, AttributeError):
        fits, chosen = False, ()
    if not fits:
        raise Problem(422, "invalid", "the form has no such versions: load its page again")
    return chosen
