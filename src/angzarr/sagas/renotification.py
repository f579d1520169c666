"""Renotification: a person has the source of a rejected command notified again (spec C4).

That helps after a bug was fixed. The log counts first. Then the notification is sent under an id of
its own, so that no claim of an earlier one stops it. The source's decision is kept under the
rejection's own id: however often it is notified, it compensates once.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from angzarr.clock import Clock
from angzarr.errors import AngzarrError, DecodeError
from angzarr.facts.act import ActKind, act_origin, end_of_act
from angzarr.facts.act_log import ActLog
from angzarr.facts.fact import Fact
from angzarr.sagas.log import AskedAgain, Case, RejectionLog, RejectionStatus
from angzarr.sagas.outbox import Outbox
from angzarr.sagas.rejection import Rejection, read_rejection

_log = logging.getLogger("angzarr.sagas")

#: So long a notified source has to answer: retries of the policy take less.
PATIENCE: Final = timedelta(minutes=10)
_SETTLED: Final = {
    RejectionStatus.COMPENSATED: "its source compensated",
    RejectionStatus.FORWARDED: "its source sent it on, which has a case of its own",
}


class NotAsked(AngzarrError):
    """A source is not asked anew; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Renotifier:
    """Asks sources anew."""

    log: RejectionLog
    outbox: Outbox
    acts: ActLog
    clock: Clock

    def check(self, case: Case) -> Rejection:
        """The rejection that the source of *case* would hear; raises NotAsked."""
        if why := _SETTLED.get(case.status):
            msg = f"{case.id} is {case.status}: {why}, so it is not asked again"
            raise NotAsked(msg)
        if case.rejection is None:
            msg = f"{case.id} was too large to be kept: replay its dead letter instead"
            raise NotAsked(msg)
        try:
            return read_rejection(case.rejection)
        except DecodeError as error:
            msg = f"{case.id} cannot be sent again: {error}"
            raise NotAsked(msg) from error

    def ask(self, case: Case, *, by: str, note: str = "") -> Case:
        """Have the source of *case* asked anew; return the case as it is then.

        Raises NotAsked; and StoreUnavailable, BrokerUnavailable: then it may be done again.
        """
        self.check(case)
        kind = ActKind.COMPENSATION_ASKED_AGAIN
        with self.acts.recording(kind, case.id, by=by, reason=note, tool_id=case.saga):
            asked = AskedAgain(by=by, at=self.clock.now(), note=note)
            counted = self.log.ask_again(case.id, asked)
            if counted is None:
                msg = f"{case.id} was removed meanwhile"
                raise NotAsked(msg)
            self.outbox.tell(self.check(counted), counted.asked_again)
            self._say(counted)
        return counted

    def _say(self, case: Case) -> None:
        try:
            self.acts.facts().append([asked_fact(case)])
        except Exception:  # noqa: BLE001 - it is done, and stands in the log of cases
            _log.exception("fact_not_appended")


def under_way(case: Case, now: datetime) -> bool:
    """True if the source of *case* may still answer its last notification. Pure."""
    return case.status is RejectionStatus.TOLD and now - case.changed_at < PATIENCE


def asked_fact(case: Case) -> Fact:
    """The fact that the source of *case* was asked anew."""
    return Fact(
        id=f"saga:{case.id}:asked:{case.asked_again}",
        type="lifecycle",
        subtype="compensation_asked_again",
        at=case.changed_at,
        resolves=end_of_act(ActKind.COMPENSATION_ASKED_AGAIN),
        entity_id=case.source.root,
        tool_id=case.saga,
        data={
            "case": case.id,
            "saga": case.saga,
            "source": str(case.source),
            "command_type": case.command_type,
            "target": str(case.target),
            "correlation_id": case.correlation_id,
            "asked_again": case.asked_again,
            "by": case.asked_by,
            "origin": act_origin().value,
            "reason": case.note or None,
        },
    )
