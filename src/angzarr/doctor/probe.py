"""Probe: one look at one server, and many looks at once within a bounded time.

A server that does not answer is one finding; it takes nothing from the others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from angzarr.doctor import server_rules
from angzarr.doctor.finding import Finding
from angzarr.errors import AngzarrError, ConfigurationError, Unavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A look at something; what it raises becomes a finding."""

    #: The server, as findings name it.
    at: str
    look: Callable[[], Iterable[Finding]]
    #: What its client raises when the server is away.
    failures: tuple[type[BaseException], ...] = ()
    #: Says what such an error means, without secrets.
    reason: Callable[[BaseException], str] = field(default=lambda error: type(error).__name__)

    def findings(self) -> list[Finding]:
        """Return what was found; never raises."""
        try:
            return list(self.look())
        except Unavailable as error:
            return [server_rules.away(self.at, str(error))]
        except AngzarrError as error:
            return [server_rules.refused(self.at, str(error))]
        except self.failures as error:
            return [server_rules.away(self.at, self.reason(error))]
        except Exception as error:  # noqa: BLE001 - one odd server must not hide the others
            kind = f"{type(error).__module__}.{type(error).__name__}"
            return [server_rules.look_failed(self.at, kind)]


def look_at_all(probes: Sequence[Probe], patience: timedelta) -> list[Finding]:
    """Return what all *probes* find, at once; one that takes longer than *patience* is away.

    Its thread is left behind: it ends with the process.
    """
    found: dict[int, list[Finding]] = {}
    threads = [
        threading.Thread(
            target=lambda number=number, probe=probe: found.update({number: probe.findings()}),
            name=f"angzarr-doctor-{number}",
            daemon=True,
        )
        for number, probe in enumerate(probes)
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + patience.total_seconds()
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0))
    late = f"it did not answer within {patience.total_seconds():g} s"
    return [
        finding
        for number, probe in enumerate(probes)
        for finding in found.get(number) or _late(probe, number in found, late)
    ]


def _late(probe: Probe, answered: bool, reason: str) -> list[Finding]:  # noqa: FBT001
    return [] if answered else [server_rules.away(probe.at, reason)]


def refusing(check: Callable[[], object], at: str) -> list[Finding]:
    """Return what *check* refuses, as a worker would."""
    try:
        check()
    except ConfigurationError as error:
        return [server_rules.refused(at, str(error))]
    return []
