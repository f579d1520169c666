"""Outages: what keeps duties waiting, each cause said once for all of them, and when it is over."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from angzarr.analysis.ledger.duty import report
from angzarr.runtime.log_throttle import Seldom

_log = logging.getLogger("angzarr.analysis")

#: What differs in two texts of one cause: ports, process ids, addresses of objects.
_NUMBER: Final = re.compile(r"0x[0-9a-f]+|\d+")


@dataclass(slots=True, kw_only=True)
class Outages:
    """Says each cause at once and then once a minute, and that what waited for it goes on."""

    seldom: Seldom = field(default_factory=Seldom)
    #: Causes that were said and are not over, with the duties that wait or waited for them.
    _said: dict[str, set[str]] = field(default_factory=dict, init=False)

    def hear(self, failed: Mapping[str, Exception]) -> None:
        """Take what a round met, by the name of the duty; nothing failed: all of it goes on."""
        causes: dict[str, list[str]] = {}
        for name, error in failed.items():
            causes.setdefault(_cause(error), []).append(name)
        for cause, names in causes.items():
            if report(", ".join(names), failed[names[0]], self.seldom, cause=cause):
                self._said.setdefault(cause, set())
            if cause in self._said:
                self._said[cause].update(names)
        self._tell_what_is_over(causes, failed)

    def _tell_what_is_over(
        self, causes: Mapping[str, list[str]], failed: Mapping[str, Exception]
    ) -> None:
        over: set[str] = set()
        for cause in self._said.keys() - causes.keys():
            over |= self._said.pop(cause)
        if going_on := sorted(over - failed.keys()):
            _log.info("%s go on", ", ".join(going_on))


def _cause(error: Exception) -> str:
    return _NUMBER.sub("#", f"{type(error).__name__}: {error}")
