"""What sections of the settings share: base class, spans of time, domains, and health."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any, Final, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
)

from angzarr.errors import ConfigurationError, InvalidCost
from angzarr.events.event import check_domain

T = TypeVar("T")


def _seconds(given: Any) -> Any:
    """Read "30" from the environment as YAML's 30: seconds."""
    if not isinstance(given, str):
        return given
    try:
        return float(given)
    except ValueError:
        return given


#: Seconds, or an ISO 8601 duration.
Span = Annotated[timedelta, BeforeValidator(_seconds)]


def _is_database(url: str) -> str:
    if not url.startswith(_DATABASES):
        msg = "is a database: write sqlite:///file or postgresql+psycopg://host/name"
        raise ValueError(msg)
    return url


_DATABASES: Final = ("postgresql:", "postgresql+", "sqlite:", "sqlite+", "memory:")
#: The URL of a database; in tests also memory://.
DatabaseUrl = Annotated[str, AfterValidator(_is_database)]

#: As people and environments write that nothing is removed.
FOR_EVER: Final = "for ever"


def kept(given: Any) -> Any:
    """Read what says for how long: None, which removes nothing, where that is for ever."""
    return None if given == FOR_EVER else given


#: More than nothing, or for ever.
Keep = Annotated[Annotated[Span, Field(gt=timedelta(0))] | None, BeforeValidator(kept)]


def said(check: Callable[[], T]) -> T:
    """The result of *check*; pydantic wants a ValueError where it refuses."""
    try:
        return check()
    except (ConfigurationError, InvalidCost) as error:
        raise ValueError(str(error)) from error


class Section(BaseModel):
    """A part of the settings: frozen, unknown keys refused.

    pydantic's errors repeat no value, and what may hold a secret, as any URL may, is not in `repr`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


#: What addresses have and domains have not.
_ADDRESS: Final = frozenset(":/@")


def checked_domain(name: str) -> str:
    """*name* if it is a domain's, for validators."""
    if not _ADDRESS.isdisjoint(name):  # it may hold a password, and is not shown
        msg = "this is an address and not the name of a domain, such as orders"
        raise ValueError(msg)
    return said(lambda: check_domain(name))


_HOST: Final = re.compile(r"[A-Za-z0-9._:-]{1,253}\Z")


class HealthSettings(Section):
    """What a worker's parent process and an analysis worker serve: probes and metrics."""

    #: Nothing is served without one.
    port: int | None = Field(default=None, ge=1, le=65535)
    #: The address to listen on; ``0.0.0.0`` or ``::`` are all.
    host: str = "127.0.0.1"
    #: How long nothing may move before a process counts as dead. Longer than the longest pause
    #: between two tries to reach a broker, which is half a minute.
    stalled_after: Span = Field(
        default=timedelta(minutes=1), ge=timedelta(seconds=45), le=timedelta(hours=1)
    )
    #: How long a handler may keep the event loop of ``--coroutines`` before the log names it.
    loop_blocked_after: Span = Field(
        default=timedelta(seconds=1), ge=timedelta(milliseconds=100), le=timedelta(hours=1)
    )

    @field_validator("host")
    @classmethod
    def _is_host(cls, given: str) -> str:
        if not _HOST.match(given):
            msg = "is an address or a name alone, like 0.0.0.0 or ::, without a port"
            raise ValueError(msg)
        return given
