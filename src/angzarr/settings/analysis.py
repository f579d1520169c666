"""AnalysisSettings: the part that says how dead letters are analysed and replayed."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_validator, model_validator

from angzarr.analysis.classification.grouping import Grouping, grouping_rules
from angzarr.analysis.classification.rules import GROUPING, RULES, WrittenRule, read, rules_from
from angzarr.analysis.ledger.emergency_stop import QuietHours, place_of, window_of
from angzarr.resilience.backoff import Policy
from angzarr.settings.alerts import AlertSettings
from angzarr.settings.base import Keep, Section, Span, kept, said

#: For no less than what the last day is judged by, or for ever.
KeepJobs = Annotated[Annotated[Span, Field(ge=timedelta(days=1))] | None, BeforeValidator(kept)]


class AutomaticSettings(Section):
    """What the analysis worker may begin by itself, and when."""

    #: Whether a held group is replayed once its cause is gone.
    recovery: bool = True

    #: What failed longer ago is held for a person; more than `longest_wait`.
    oldest: Span = Field(default=timedelta(days=30), gt=timedelta(0))

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
    #: Whether a replay with edited data waits for a second person.
    edits: bool = False


class AnalysisSettings(Section):
    """How the DLQ-analysis worker replays (spec A4)."""

    max_replays: int = Field(default=3, ge=0)
    first_delay: Span = timedelta(seconds=30)
    longest_delay: Span = timedelta(hours=1)
    #: A replay that was not answered by then is held for a person.
    answer_deadline: Span = timedelta(hours=1)
    #: How long an entry waits for an ill dependency before a person is asked.
    longest_wait: Span = Field(default=timedelta(days=1), gt=timedelta(0))
    #: Rules that come before those that ship with angzarr, or the path of a YAML file of them;
    #: only the analysis worker reads that file.
    rules: str | tuple[dict[str, Any], ...] = Field(default=(), repr=False)
    #: How long resolved, skipped and compensated entries are kept; None: for ever.
    keep_closed: Keep = Field(default=timedelta(days=30))
    keep_archived: Keep = Field(default=timedelta(days=180))
    #: How long replay jobs are kept after they ended; None: for ever. No less than a day, by which
    #: others are judged (`recovery.LEFT_TO_PEOPLE`, `job_approval.ADDED_UP`).
    keep_jobs: KeepJobs = Field(default=timedelta(days=90))
    automatic: AutomaticSettings = AutomaticSettings()
    alerts: AlertSettings = AlertSettings()
    #: Replays of one entry after which neither the worker nor a job replays it; a person may.
    most_replays: int = Field(default=10, ge=1)
    approvals: ApprovalSettings = ApprovalSettings()

    #: Which failures are one group, where the worker's fingerprint does not suit; rules or a path.
    grouping: str | tuple[dict[str, Any], ...] = Field(default=(), repr=False)
    #: The application's packages: of a stack only their frames tell groups apart.
    in_app: tuple[str, ...] = Field(default=(), repr=False)

    @model_validator(mode="after")
    def _oldest_waits(self) -> AnalysisSettings:
        if self.automatic.oldest <= self.longest_wait:
            msg = "analysis.automatic.oldest must be longer than analysis.longest_wait"
            raise ValueError(msg)
        return self

    @field_validator("rules")
    @classmethod
    def _check_rules(cls, rules: Any) -> Any:
        said(lambda: isinstance(rules, str) or rules_from(rules, RULES))
        return rules

    @field_validator("grouping")
    @classmethod
    def _check_grouping(cls, rules: Any) -> Any:
        said(lambda: isinstance(rules, str) or grouping_rules(rules, GROUPING))
        return rules

    def written_rules(self) -> tuple[WrittenRule, ...]:
        """Return the rules of the settings; raises ConfigurationError naming file, rule and key."""
        return rules_from(*read(self.rules, RULES))

    def letter_grouping(self) -> Grouping:
        """Return what puts letters into groups; raises ConfigurationError as for rules."""
        return Grouping(rules=grouping_rules(*read(self.grouping, GROUPING)), in_app=self.in_app)

    def replay_backoff(self) -> Policy:
        """Return the pauses between automatic replays."""
        return Policy(
            name="replay",
            base=self.first_delay,
            max_delay=max(self.first_delay, self.longest_delay),
            max_attempts=self.max_replays + 1,
        )
