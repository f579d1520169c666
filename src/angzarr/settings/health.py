"""The settings of the health endpoint: where a process tells how it does."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from pydantic import Field, field_validator

from angzarr.settings.base import Section, Span

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

    @field_validator("host")
    @classmethod
    def _is_host(cls, given: str) -> str:
        if not _HOST.match(given):
            msg = "is an address or a name alone, like 0.0.0.0 or ::, without a port"
            raise ValueError(msg)
        return given
