"""Settings of pinned configurations: where they are, what is cached, what is pinned at publish."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from angzarr.configuration.reader import CACHED, CURRENT_FOR
from angzarr.configuration.version import check_id
from angzarr.settings.base import Section, Span, said

#: Bytes; a version has up to one million.
_LEAST_CACHE: Final = 1024 * 1024


def _checked(pins: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """*pins* if all that they name can be the id of a configuration."""
    for names in pins.values():
        for name in names:
            said(lambda name=name: check_id(name))  # type: ignore[misc]
    return pins


class ConfigurationSettings(Section):
    """Versions of configurations, which handlers read as their events are pinned (spec F3)."""

    #: A database or a Redis that publishers and workers share; by default that of the claims.
    url: str | None = Field(default=None, repr=False)
    #: Migrate the tables of configurations automatically.
    migrate: bool = True
    #: Bytes of values that each process keeps. Versions never change, so they are kept until
    #: others need the room.
    cache: int = Field(default=CACHED, ge=_LEAST_CACHE)
    #: How long a process takes a version for the current one before it asks again; 0 asks always.
    current_for: Span = Field(default=CURRENT_FOR, ge=timedelta(0), le=timedelta(minutes=5))
    #: By event type: configurations that each such event is pinned to when it is published.
    pin_at_publish: Annotated[dict[str, tuple[str, ...]], AfterValidator(_checked)] = Field(
        default_factory=dict
    )
