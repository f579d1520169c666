"""Desk: what people work on through the dashboard, opened once a process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from angzarr.analysis.alerts.alert import Alerts
from angzarr.analysis.alerts.alert_delivery import Sink
from angzarr.analysis.classification.classify import Classifier
from angzarr.analysis.classification.evidence_collector import EvidenceCollector
from angzarr.analysis.ledger.emergency_stop import Brake
from angzarr.analysis.ledger.entry import Entry
from angzarr.analysis.ledger.group import Groups
from angzarr.analysis.ledger.idempotent_requests import Writes
from angzarr.analysis.ledger.ledger import Ledger
from angzarr.analysis.replay.compensation import Compensator
from angzarr.analysis.replay.editor import Editor
from angzarr.analysis.replay.job_store import ReplayJobs
from angzarr.analysis.replay.replay import Replayer
from angzarr.analysis.replay.skip import Skips
from angzarr.clock import Clock
from angzarr.dashboard.ordered_desk import OrderedDesk
from angzarr.dashboard.rejected_desk import RejectedDesk
from angzarr.dashboard.survey import Surveyor
from angzarr.dead_letters.depth import QueueDepth
from angzarr.dead_letters.letter import DeadLetter
from angzarr.resilience.breaker import BreakerControls


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """Every store that the dashboard reads and changes."""

    ledger: Ledger
    groups: Groups
    jobs: ReplayJobs
    writes: Writes
    brake: Brake
    alerts: Alerts
    #: Where alerts go besides the log, by name; raises MissingExtra.
    webhooks: Callable[[], Mapping[str, Sink]]
    #: Which class entries would have now, and all that is known of them.
    classifier: Classifier
    gathering: EvidenceCollector
    replayer: Replayer
    compensator: Compensator
    skips: Skips
    editor: Editor
    #: Raises ConfigurationError where no breakers are shared.
    breakers: Callable[[], BreakerControls]
    #: What is known of who wrote a letter and who can open it.
    told: Callable[[DeadLetter], Mapping[str, str]]
    clock: Clock
    #: How many later events wait behind which entries, by id; says nothing of the others.
    behind: Callable[[Sequence[Entry]], Mapping[str, int]]
    ordered: OrderedDesk
    #: How ordered handlers do.
    surveyor: Surveyor
    rejected: RejectedDesk
    #: What dead-letter queues said lately of letters that nobody has read, by domain.
    unread: Callable[[], Mapping[str, QueueDepth]]
    #: Replays of one entry that no job goes beyond.
    most_replays: int
    #: A job of more entries than these waits for another person; None: none does.
    approval_over: int | None = None
    #: Whether a replay with edited data does.
    approves_edits: bool = False

    @property
    def has_approvals(self) -> bool:
        """Whether anything waits for another person."""
        return self.approval_over is not None or self.approves_edits
