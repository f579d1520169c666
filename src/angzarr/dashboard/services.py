"""Services: every store that the dashboard works on, opened once a process, and looking things up.

A lookup returns one thing by its name, or raises a Problem that says there is none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from angzarr.analysis.alerts.alert import Alerts
from angzarr.analysis.alerts.alert_delivery import Sink
from angzarr.analysis.classification.classify import Classifier, explanation_json
from angzarr.analysis.classification.evidence import evidence_items
from angzarr.analysis.classification.evidence_collector import EvidenceCollector
from angzarr.analysis.ledger.emergency_stop import Brake, BrakeState
from angzarr.analysis.ledger.entry import Entry, EntryDetail
from angzarr.analysis.ledger.filing_plan import as_stored
from angzarr.analysis.ledger.group import Group, Groups
from angzarr.analysis.ledger.idempotent_requests import Writes
from angzarr.analysis.ledger.ledger import Ledger
from angzarr.analysis.replay.compensation import Compensator
from angzarr.analysis.replay.editor import Editor
from angzarr.analysis.replay.job import ItemState, JobItem, ReplayJob
from angzarr.analysis.replay.job_store import ReplayJobs
from angzarr.analysis.replay.replay import Replayer
from angzarr.analysis.replay.skip import Skips
from angzarr.clock import Clock
from angzarr.configuration.version import ConfigurationSource
from angzarr.dashboard.fact_services import FactServices
from angzarr.dashboard.ordered_handlers import BOOKS, OrderedServices, Surveyor
from angzarr.dashboard.paging import no_cursor, position_after
from angzarr.dashboard.problem import asking, not_found
from angzarr.dead_letters.depth import QueueDepth
from angzarr.dead_letters.letter import DeadLetter
from angzarr.errors import AngzarrError
from angzarr.events.event import Event
from angzarr.facts.act_log import ActLog
from angzarr.resilience.breaker import BreakerControls, BreakerState
from angzarr.sagas.log import MAX_FLOW, CaseFilter, Page, page_of
from angzarr.sagas.story import EventStores, Hiding, Story, story_of

#: What is said to be away when it is.
CONFIGURATIONS: Final = "the store of configurations"


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedServices:
    """What is asked about rejected commands."""

    #: Raises ConfigurationError where no event books are kept.
    event_stores: Callable[[], EventStores]
    hide: Hiding
    #: Where `SagaCompensationFailed` belongs.
    fallback_domain: str

    def page(self, wanted: CaseFilter, *, limit: int, after: str) -> Page:
        """A page of cases without what is hidden; raises Problem, ConfigurationError."""
        flow = wanted.correlation_id
        wanted = wanted._replace(correlation_id=flow and flow[:MAX_FLOW])  # a case has no more
        with asking(BOOKS):
            try:
                page = page_of(self.event_stores().rejections, wanted, limit=limit, after=after)
            except ValueError:
                raise no_cursor() from None
        return page._replace(cases=[self.hide.of_case(case) for case in page.cases])

    def story(self, case_id: str) -> Story:
        """All about a case without what is hidden; raises Problem, ConfigurationError."""
        with asking(BOOKS):
            event_stores = self.event_stores()
            found = event_stores.rejections.look(case_id)
            if not found or found[0].id != case_id:
                raise not_found("case")
            story = story_of(event_stores.books, found[0])
        command = story.rejection.command.event if story.rejection else None
        return replace(story, case=self.hide.of_case(story.case, command))

    def data(self, story: Story) -> Callable[[Event], Any]:
        """A function that gives the data of an event of *story* without what is hidden."""
        return lambda event: self.hide.data(story.case, event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
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
    ordered: OrderedServices
    #: How ordered handlers do.
    surveyor: Surveyor
    rejected: RejectedServices
    facts: FactServices
    #: Acts that are not on the ledger.
    acts: ActLog
    #: Raises ConfigurationError where none are configured.
    configurations: Callable[[], ConfigurationSource]
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


def detail_of(services: Services, entry_id: str) -> EntryDetail:
    """An entry with its letter and history."""
    detail = services.ledger.open(entry_id)
    if detail is None:
        raise not_found("entry")
    return detail


def protection_of(services: Services, detail: EntryDetail) -> Mapping[str, str]:
    """The signature and encryption of an entry's letter, as far as they are known."""
    failure = detail.failure
    return dict(services.told(failure)) if isinstance(failure, DeadLetter) else {}


def explained(services: Services, detail: EntryDetail) -> dict[str, Any]:
    """How an entry would be classified now, and why; asks the same sources as the worker."""
    (evidence,) = services.gathering.gather([as_stored(detail.entry, detail.failure)])
    return explanation_json(
        detail.entry, services.classifier.explain(evidence), evidence_items(evidence)
    )


def group_of(services: Services, fingerprint: str) -> Group:
    """A group."""
    group = services.groups.open_group(fingerprint)
    if group is None:
        raise not_found("group")
    return group


def job_of(services: Services, job_id: str) -> ReplayJob:
    """A replay job."""
    job = services.jobs.open_job(job_id)
    if job is None:
        raise not_found("job")
    return job


def item_page(
    services: Services, job_id: str, states: Sequence[ItemState], after: str, limit: int
) -> tuple[list[JobItem], str]:
    """The entries of a job behind a cursor as callers see it, and the next cursor, or nothing.

    The position says where a page ends: entries never leave a job nor change places in it.
    """
    behind = position_after(after)
    found = services.jobs.items(job_id, states, limit=limit + 1, after=behind)
    return found[:limit], str(found[limit - 1].position) if found[limit:] else ""


def breaker_of(services: Services, name: str) -> BreakerState:
    """A breaker."""
    state = services.breakers().states().get(name)
    if state is None:
        raise not_found("breaker")
    return state


#: How old it may be, and how long a ledger that was away is not asked again.
FRESH: Final = timedelta(seconds=2)


AWAY: Final = timedelta(seconds=15)


@dataclass(slots=True)
class BrakeLight:
    """Remembers how the brake stood; one thread at a time asks again."""

    brake: Brake
    clock: Clock
    #: None: nobody has said it yet.
    _known: BrakeState | None = None
    _ask_at: datetime | None = None
    _asking: threading.Lock = field(default_factory=threading.Lock)

    def look(self) -> BrakeState | None:
        """The present state, or the last known one where the ledger is away; None: unknown."""
        if self._is_fresh() or not self._asking.acquire(blocking=False):
            return self._known
        try:
            self.show(self.brake.state())
        except AngzarrError:  # the page itself says what is wrong, if it needs the ledger
            self._ask_at = self.clock.now() + AWAY
        finally:
            self._asking.release()
        return self._known

    def last(self) -> BrakeState | None:
        """The last known state, without a question to the ledger; None: unknown."""
        return self._known

    def show(self, state: BrakeState) -> None:
        """Take in how it stands now."""
        self._known, self._ask_at = state, self.clock.now() + FRESH

    def _is_fresh(self) -> bool:
        return self._ask_at is not None and self.clock.now() < self._ask_at
