"""Facts of acts that share no transaction with the facts: said before, and ended after (spec F1).

That an act begins is kept before it is done, and what became of it is appended after. An act whose
end is missing tells that its process was killed in between.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from angzarr.clock import Clock
from angzarr.errors import AngzarrError, text_of
from angzarr.facts.act import (
    ActKind,
    ActStage,
    BegunAct,
    act_fact,
    act_origin,
    within_act,
)
from angzarr.facts.fact import Fact, FactLog
from angzarr.facts.query import FactQuery, FactReader
from angzarr.facts.resolution import ACT_BEGUN, LIFECYCLE
from angzarr.runtime.text import printable

_log = logging.getLogger("angzarr.facts")

#: How long an act waits, at most, until it is kept that it begins: no outage stops a person.
WAITED: Final = timedelta(seconds=3)
#: Characters of an error that a fact repeats.
_LONGEST: Final = 500


#: From what age on an act without an end is told to people, and for how long.
LATE: Final = timedelta(hours=1)
LOOKED_BACK: Final = timedelta(days=7)
#: Acts that are looked at, the last ones.
_LOOKED_AT: Final = 500


def unended_acts(reader: FactReader, now: datetime) -> list[Fact]:
    """The facts that began an act a while before *now* which has no end, the newest first.

    Raises Unavailable.
    """
    begun = FactQuery(type=LIFECYCLE, subtype=ACT_BEGUN, since=now - LOOKED_BACK, until=now - LATE)
    found = reader.find(begun, limit=_LOOKED_AT).facts
    ends = reader.ends(found)
    return [one for one in found if one.id not in ends]


class RunningAct:
    """What one `ActLog.recording` is given, to say what was done."""

    def __init__(self, append: Callable[..., None], begun: BegunAct) -> None:
        self._append = append
        self._begun = begun

    def done(self, data: Mapping[str, Any], *, kind: ActKind | None = None, **told: Any) -> None:
        """Append the fact of the act, once it is done; *kind*: another one than was begun."""
        self._begun.has_end = True
        self._append(kind or self._begun.kind, data, resolves=self._begun.id, **told)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActLog:
    """Appends the facts of acts that are not on the ledger. It raises nothing of its own."""

    #: Is asked for its log once there is something to say.
    facts: Callable[[], FactLog]
    clock: Clock
    waited: timedelta = WAITED

    @contextmanager
    def recording(
        self, kind: ActKind, subject: str, *, by: str, reason: str = "", **told: Any
    ) -> Iterator[RunningAct]:
        """Say that *by* begins *kind* on *subject*, and after the block what became of it.

        It begins once the facts have it, or after `waited`, with a warning. The block calls `done`
        when something was done; what it raises ends the act as failed, else it changed nothing.
        *told* are fields of both facts. Several things that one block does have one beginning.
        """
        name = f"{kind}:{subject}:{self.clock.now().isoformat()}"
        begun = BegunAct(f"{name}:begun", kind)
        about = {"act": kind.value, "subject": subject}

        def append(
            what: ActKind | ActStage, data: Mapping[str, Any], ending: str = "", **more: Any
        ) -> None:
            self._append(what, name + ending, by=by, reason=reason, data=data, **(told | more))

        append(ActStage.BEGUN, about, ":begun")
        try:
            self._await(kind, subject)
            with within_act(begun):
                yield RunningAct(append, begun)
        except BaseException as error:
            if not begun.has_end:
                failed = about | {"error": _text(error)}
                append(ActStage.FAILED, failed, ":failed", resolves=begun.id)
            raise
        if not begun.has_end:
            append(ActStage.CHANGED_NOTHING, about, ":nothing", resolves=begun.id)

    def record(
        self,
        kind: ActKind,
        subject: str,
        *,
        by: str,
        reason: str = "",
        data: Mapping[str, Any],
        **told: Any,
    ) -> None:
        """Append that *by* did *kind* to *subject* now, where `recording` says that it begins."""
        name = f"{kind}:{subject}:{self.clock.now().isoformat()}"
        self._append(kind, name, by=by, reason=reason, data=data, **told)

    def _append(self, kind: ActKind | ActStage, fact_id: str, **said: Any) -> None:
        try:
            fact = act_fact(kind, fact_id, self.clock.now(), origin=act_origin(), **said)
            self.facts().append([fact])
        except Exception:  # noqa: BLE001 - no fact stops an act, or undoes one
            _log.exception(
                "fact_not_appended: of this act no fact tells: %s by %s",
                printable(fact_id), printable(said.get("by")),
            )  # fmt: skip

    def _await(self, kind: ActKind, subject: str) -> None:
        try:
            kept = self.facts().flush(self.waited)
        except Exception:  # noqa: BLE001 - the same
            kept = False
        if not kept:
            _log.warning(
                "act_not_announced: %s of %s goes on, but the place of facts does not answer: if"
                " this process ends before it answers, no fact tells of it",
                kind, printable(subject),
            )  # fmt: skip


def _text(error: BaseException) -> str:
    """What *error* is; of errors of ours also what they say: others may repeat any value."""
    name = type(error).__name__
    said = f"{name}: {text_of(error)}" if isinstance(error, AngzarrError) else name
    return printable(" ".join(said.split()))[:_LONGEST]
