"""Lines that say all of themselves: facts (spec F1) and alerts (spec A5), one line each.

They cost a third of a bound logger's. structlog copies the fields into a new logger, runs a chain,
looks for the caller on the stack, and copies the record to render it. These need none of that.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from angzarr.adapters.structlog.logs import (
    Line,
    bound_logger,
    complete,
    is_ours,
    says_more,
    to_json,
)
from angzarr.adapters.structlog.written_together import handle_all, takes_json, write_json
from angzarr.analysis.alerts.alert_form import AlertSeverity
from angzarr.facts.fact import Cost, Fact
from angzarr.runtime.cooperative import gather
from angzarr.runtime.group_commit import GROUP_COMMIT
from angzarr.webhooks import PostResult

if TYPE_CHECKING:  # every worker logs facts, and only an analysis worker alerts
    from angzarr.analysis.alerts.alert import Alert

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
        """True if lines of *level* are written at all."""
        return self._logger.isEnabledFor(level)

    def write(self, level: int, event: str, fields: Mapping[str, Any]) -> None:
        """Write a line of *level*: info, warning or error. Ask first whether it is wanted."""
        self.write_all(level, event, [fields])

    def may_wait(self) -> bool:
        """True if lines are the same when they are written later: nothing here adds to them.

        So a worker makes them in one go, which takes a third of the time of one after each event.
        """
        if not (GROUP_COMMIT.is_open and self._is_ours()) or says_more():
            return False
        return takes_json(self._logger)

    def write_all(self, level: int, event: str, lines: Sequence[Mapping[str, Any]]) -> None:
        """Write several *lines*, in order; where a thread is shared with what others write."""
        if not self._is_ours():
            for fields in lines:
                self._bound.log(level, event, **fields)
            return
        whole = self._whole(level, event, lines)
        if takes_json(self._logger):
            gather(self._write, [(level, to_json(line)) for line in whole])
        else:
            gather(self._handle, [self._record(level, line) for line in whole])

    def _is_ours(self) -> bool:
        if not self._ours:
            self._ours = is_ours()  # once it is, it stays, as in a bound logger
        return self._ours

    def _whole(self, level: int, event: str, lines: Sequence[Mapping[str, Any]]) -> list[Line]:
        """*lines* with what our chain adds to each; it adds the same to all, and is asked once."""
        word = _WORDS[level]
        if says_more():
            whole = [Line(fields, event=event) for fields in lines]
            for line in whole:
                complete(self._logger, word, line)
            return whole
        added = Line()
        complete(self._logger, word, added)
        return [Line({**fields, "event": event, **added}) for fields in lines]

    def _record(self, level: int, line: Line) -> logging.LogRecord:
        record = self._logger.makeRecord(self._name, level, __file__, 0, line, (), None)
        vars(record).update(_logger=self._logger, _name=_WORDS[level])  # as structlog marks its own
        return record

    def _write(self, lines: list[tuple[int, str]]) -> None:
        write_json(self._logger, lines)

    def _handle(self, records: list[logging.LogRecord]) -> None:
        handle_all(self._logger, records)


FACT_LOG = "angzarr.facts"
_NAMED = (
    "tenant_id", "entity_id", "tool_id", "event_id", "trace_id", "asset_id", "config_id",
    "config_version", "resolves",
)  # fmt: skip
_values_of = attrgetter(*_NAMED)


class StructlogFactLog:
    """Writes each fact as an INFO line ``fact`` of the logger ``angzarr.facts``.

    It is as quick and as sure as the process's own log handlers, to which it writes at once. A
    fact appended twice is two lines with one `fact_id`.
    """

    def __init__(self) -> None:
        self._lines = OwnLines(FACT_LOG)

    def append(self, facts: Sequence[Fact], /, *, before_ack: bool = False) -> None:
        """Log *facts* in order; costs next to nothing where INFO is off."""
        if not self._lines.wanted(logging.INFO):
            return
        if before_ack and self._lines.may_wait():
            GROUP_COMMIT.add(self._write, facts)
        else:
            self._write(facts)

    def carry(self, facts: Sequence[Fact], /, *, before_ack: bool = False) -> tuple[str, ...]:
        """Log *facts*: lines need no relay."""
        self.append(facts, before_ack=before_ack)
        return ()

    def lines(self, facts: Sequence[Fact], /) -> tuple[str, ...]:  # noqa: ARG002 - no claim keeps any
        """None of them."""
        return ()

    def _write(self, facts: Sequence[Fact]) -> None:
        try:
            self._lines.write_all(logging.INFO, "fact", [_fact_fields(fact) for fact in facts])
        except Exception:
            if len(facts) == 1:
                logging.getLogger(FACT_LOG).exception("fact_not_logged")
            else:
                for fact in facts:
                    self._write([fact])

    def flush(self, within: timedelta, /) -> bool:  # noqa: ARG002 - a line is written at once
        """Write what waits for an acknowledgement."""
        GROUP_COMMIT.write()
        return True

    def close(self) -> None:
        """Write what waits for an acknowledgement."""
        GROUP_COMMIT.write()


def _fact_fields(fact: Fact) -> dict[str, object]:
    """The fields of *fact*; absent ones are left out."""
    said: dict[str, object] = {
        "fact_id": fact.id,
        "type": fact.type,
        "subtype": fact.subtype,
        "at": fact.at.isoformat(),
    }
    named = zip(_NAMED, _values_of(fact), strict=True)
    said |= {name: value for name, value in named if value is not None}
    if fact.cost is not None:
        said |= _cost_fields(fact.cost)
    said["data"] = dict(fact.data)
    return said


def _cost_fields(cost: Cost) -> dict[str, object]:
    said: dict[str, object] = {"amount": f"{cost.amount:f}", "currency": cost.currency}
    named = (("from_entity", cost.from_entity), ("to_entity", cost.to_entity))
    return said | {name: value for name, value in named if value is not None}


ALERT_LOG = "angzarr.alerts"

_LEVELS = {AlertSeverity.WARNING: logging.WARNING, AlertSeverity.ERROR: logging.ERROR}


class LogSink:
    """Fulfils `Sink`: each alert is a line ``dlq_alert`` of the logger ``angzarr.alerts``.

    Its level is ERROR or WARNING, by severity; the end of a cause is INFO.
    """

    name = "log"
    place = "the log"

    def __init__(self) -> None:
        self._lines = OwnLines(ALERT_LOG)

    def send(self, alert: Alert) -> PostResult:
        """Write *alert*."""
        level = logging.INFO if alert.resolved else _LEVELS[alert.severity]
        if self._lines.wanted(level):
            event = "dlq_alert_resolved" if alert.resolved else "dlq_alert"
            self._lines.write(level, event, _alert_fields(alert))
        return PostResult(arrived=True)

    def close(self) -> None:
        """Do nothing: nothing is held back."""


def _alert_fields(alert: Alert) -> dict[str, object]:
    """The fields of *alert*; absent ones are left out."""
    said = {
        "alert_id": alert.id,
        "key": alert.key,
        "kind": alert.kind.value,
        "title": alert.title,
        "text": alert.text,
        "todo": alert.todo,
        "link": alert.link,
        "since": alert.since.isoformat(),
        "last_at": alert.last_at.isoformat(),
        "count": alert.count,
        "group": alert.fingerprint,
        "domain": alert.domain,
        "handler": alert.handler_name,
        "error_type": alert.error_type,
    }
    return {name: value for name, value in said.items() if value not in {"", None}}
