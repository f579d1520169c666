"""Facts as lines of the structured log, one each (spec F1).

OwnLines: the lines that every delivery has, written for a third of a bound logger's price.

structlog copies the fields into a new logger, runs a chain, looks for the caller on the stack, and
copies the record to render it. A line that says all of itself needs none of that.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from angzarr.adapters.structlog.logs import Line, bound_logger, complete, is_ours
from angzarr.facts import Fact

_WORDS = {logging.INFO: "info", logging.WARNING: "warning", logging.ERROR: "error"}


class OwnLines:
    """Writes the same lines as a bound logger of this *name*, to the same handlers.

    Who configured structlog in another way has a bound logger write them.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._logger = logging.getLogger(name)
        self._bound = bound_logger({}, name)
        self._ours = False

    def wanted(self, level: int) -> bool:
        """Tell whether lines of *level* are written at all."""
        return self._logger.isEnabledFor(level)

    def write(self, level: int, event: str, fields: Mapping[str, Any]) -> None:
        """Write a line of *level*: info, warning or error. Ask first whether it is wanted."""
        if not self._ours:
            self._ours = is_ours()  # once it is, it stays, as in a bound logger
        if not self._ours:
            self._bound.log(level, event, **fields)
            return
        line = Line(fields, event=event)
        complete(self._logger, _WORDS[level], line)
        record = self._logger.makeRecord(self._name, level, __file__, 0, line, (), None)
        vars(record).update(_logger=self._logger, _name=_WORDS[level])  # as structlog marks its own
        self._logger.handle(record)


NAME = "angzarr.facts"


class StructlogFactLog:
    """Writes each fact as an INFO line ``fact`` of the logger ``angzarr.facts``.

    It is as quick and as sure as the process's own log handlers, to which it writes at once. A
    fact appended twice is two lines with one `fact_id`.
    """

    def __init__(self) -> None:
        self._lines = OwnLines(NAME)

    def append(self, facts: Sequence[Fact], /) -> None:
        """Log *facts* in order; costs next to nothing where INFO is off."""
        if not self._lines.wanted(logging.INFO):
            return
        try:
            for fact in facts:
                self._lines.write(logging.INFO, "fact", _fields(fact))
        except Exception:
            logging.getLogger(NAME).exception("fact_not_logged")

    def close(self) -> None:
        """Do nothing: nothing is held back."""


def _fields(fact: Fact) -> dict[str, object]:
    """Return what *fact* says; absent fields make none."""
    said = {
        "fact_id": fact.id,
        "type": fact.type,
        "subtype": fact.subtype,
        "at": fact.at.isoformat(),
        "tenant_id": fact.tenant_id,
        "entity_id": fact.entity_id,
        "tool_id": fact.tool_id,
        "asset_id": fact.asset_id,
        "config_id": fact.config_id,
        "config_version": fact.config_version,
        "data": dict(fact.data),
    }
    return {name: value for name, value in said.items() if value is not None}
