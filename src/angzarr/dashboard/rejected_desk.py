"""RejectedDesk: where rejected commands of sagas are looked at, and what of them may be seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from angzarr.dashboard.ordered_desk import BOOKS
from angzarr.dashboard.paging import no_cursor
from angzarr.dashboard.problem import asking, not_found
from angzarr.events.event import Event
from angzarr.sagas.log import MAX_FLOW, CaseFilter, Page, page_of
from angzarr.sagas.story import EventStores, Hiding, Story, story_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedDesk:
    """What is asked about rejected commands."""

    #: Raises ConfigurationError where no event books are kept.
    shelves: Callable[[], EventStores]
    hide: Hiding
    #: Where `SagaCompensationFailed` belongs.
    fallback_domain: str

    def page(self, wanted: CaseFilter, *, limit: int, after: str) -> Page:
        """Return a page of cases without what is hidden; raises Problem, ConfigurationError."""
        flow = wanted.correlation_id
        wanted = wanted._replace(correlation_id=flow and flow[:MAX_FLOW])  # a case has no more
        with asking(BOOKS):
            try:
                page = page_of(self.shelves().rejections, wanted, limit=limit, after=after)
            except ValueError:
                raise no_cursor() from None
        return page._replace(cases=[self.hide.of_case(case) for case in page.cases])

    def story(self, case_id: str) -> Story:
        """Return all about a case without what is hidden; raises Problem, ConfigurationError."""
        with asking(BOOKS):
            shelves = self.shelves()
            found = shelves.rejections.look(case_id)
            if not found or found[0].id != case_id:
                raise not_found("case")
            story = story_of(shelves.books, found[0])
        command = story.rejection.command.event if story.rejection else None
        return replace(story, case=self.hide.of_case(story.case, command))

    def data(self, story: Story) -> Callable[[Event], Any]:
        """Return what gives the data of an event of *story* without what is hidden."""
        return lambda event: self.hide.data(story.case, event)
