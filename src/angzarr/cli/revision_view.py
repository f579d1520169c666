"""Revisions of tables for people and programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from angzarr.maintenance.schema_versions import Revision, SchemaStanding, TablesUpkeep

_SAYS: Final[Mapping[SchemaStanding, str]] = {
    SchemaStanding.MISSING: "no tables yet; they are made when {name} is first used",
    SchemaStanding.BEHIND: "behind; `angzarr {cure}` brings it there",
    SchemaStanding.CURRENT: "as this release needs it",
    SchemaStanding.NEWER: "of a newer release, which alone can use it",
}


def standing_text(found: Revision, *, name: str, cure: str) -> str:
    """Say where tables stand, and what brings them to where they should be."""
    return _SAYS[found.standing].format(name=name, cure=cure)


def version_text(found: Revision, *, name: str, cure: str) -> str:
    """Say which revision tables have."""
    return f"{found.found or 'none'}: {standing_text(found, name=name, cure=cure)}"


def upgraded_text(before: Revision) -> str:
    """Say what an upgrade of tables that were at *before* did."""
    if before.standing is SchemaStanding.CURRENT:
        return f"{before.needed}: nothing to do"
    return f"upgraded from {before.found or 'nothing'} to {before.needed}"


def differences_of(upkeep: TablesUpkeep, found: Revision, *, name: str, cure: str) -> list[str]:
    """Return how tables differ from what this release expects; those of others differ at all."""
    if found.standing is SchemaStanding.CURRENT:
        return list(upkeep.differences())
    return [standing_text(found, name=name, cure=cure)]


def revision_json(revision: Revision) -> dict[str, str | None]:
    """Return a revision for programs."""
    return {
        "revision": revision.found or None,
        "needed": revision.needed,
        "standing": revision.standing.value,
    }
