"""AnalysisSettings: the part that says how dead letters are analysed and replayed."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field, model_validator

from angzarr.analysis.quiet_hours import QuietHours, place_of, window_of
from angzarr.sections import Section, Span, said


class AutomaticSettings(Section):
    """When the analysis worker may begin something by itself."""

    #: Local times at which nothing begins, e.g. ``22:00-06:00`` or ``Sat,Sun 00:00-24:00``.
    quiet_hours: tuple[str, ...] = ()
    #: Whose local time that is, as in the tz database.
    timezone: str = "UTC"

    @model_validator(mode="after")
    def _check(self) -> AutomaticSettings:
        said(self.quiet)
        return self

    def quiet(self) -> QuietHours:
        """Return the quiet hours; raises ConfigurationError for what cannot be read."""
        windows = tuple(window_of(text) for text in self.quiet_hours)
        return QuietHours(windows=windows, place=place_of(self.timezone))


class ApprovalSettings(Section):
    """What a second person must approve (spec A5)."""

    #: Jobs of more entries than this; None: none.
    jobs_over: int | None = Field(default=None, ge=0)


class AnalysisSettings(Section):
    """How the DLQ-analysis worker replays (spec A4)."""

    max_replays: int = Field(default=3, ge=0)
    first_delay: Span = timedelta(seconds=30)
    longest_delay: Span = timedelta(hours=1)
    #: A replay that was not answered by then is held for a person.
    answer_deadline: Span = timedelta(hours=1)
    automatic: AutomaticSettings = AutomaticSettings()
    #: Replays of one entry after which neither the worker nor a job replays it; a person may.
    most_replays: int = Field(default=10, ge=1)
    approvals: ApprovalSettings = ApprovalSettings()
