"""ForgottenWatches: watches of groups and replay jobs that are gone themselves."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from angzarr.analysis.alerts.alert import GROUP, JOB, Alerts
from angzarr.analysis.ledger.group import Groups
from angzarr.analysis.replay.job import ReplayJobs
from angzarr.maintenance.retention import Removed

#: Watches looked at in one turn, each with a question of its own.
LOOKED_AT: Final = 100


@dataclass(slots=True, kw_only=True)
class ForgottenWatches:
    """Fulfils `pruning.Removal`. A watch goes once its subject is gone and nothing of it is open.

    While the subject is there its watch is what keeps it from being told a second time.
    """

    alerts: Alerts
    groups: Groups
    jobs: ReplayJobs
    batch: int = LOOKED_AT
    name: str = field(default="old watches", init=False)
    what: str = field(default="watches of groups and jobs that are gone", init=False)
    #: The last subject looked at.
    _after: str = field(default="", init=False)

    def remove(self, now: datetime) -> Removed:  # noqa: ARG002 - it goes by what is there
        """Look at the next watches and remove those without a subject."""
        watches = self.alerts.closed_watches(after=self._after, limit=self.batch)
        more = len(watches) == self.batch
        self._after = watches[-1].subject if more else ""
        gone = [one for one in watches if self._is_gone(one.subject)]
        return Removed(self.alerts.forget_watches(gone) if gone else 0, more)

    def _is_gone(self, subject: str) -> bool:
        if subject.startswith(GROUP):
            return self.groups.open_group(subject.removeprefix(GROUP)) is None
        if subject.startswith(JOB):
            return self.jobs.open_job(subject.removeprefix(JOB)) is None
        return False
