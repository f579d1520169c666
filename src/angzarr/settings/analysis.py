"""Settings of analysis, replays and alerts (spec A4, A5)."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from angzarr.analysis.alerts.alert_form import AlertSeverity, BodyFormat
from angzarr.resilience.backoff import Policy
from angzarr.resilience.idempotency import RECORD_LIFE
from angzarr.settings.base import Section, Span, kept, said
from angzarr.settings.webhooks import check_address, keys_of

if TYPE_CHECKING:  # every process reads settings; only some have those that need the analysis
    from angzarr.analysis.classification.grouping import Grouping
    from angzarr.analysis.classification.rules import WrittenRule
    from angzarr.analysis.ledger.emergency_stop import QuietHours

_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_NOTHING: Final = timedelta(0)
_UTC: Final = "UTC"


class WebhookSettings(Section):
    """One receiver of alerts."""

    url: SecretStr
    #: Each signs; a receiver needs to know one of them.
    secrets: tuple[SecretStr, ...] = ()
    format: BodyFormat = BodyFormat.GENERIC
    severities: tuple[AlertSeverity, ...] = Field(default=(AlertSeverity.ERROR,), min_length=1)
    #: A file of authorities that are trusted besides the system's.
    ca_certs: str | None = None

    @model_validator(mode="after")
    def _works(self) -> WebhookSettings:
        check_address(self.url.get_secret_value())
        self.keys()
        if self.format is BodyFormat.GENERIC and not self.secrets:
            msg = "secrets are missing: a receiver could not tell alerts from forgeries;"
            msg += " make one with: echo whsec_$(openssl rand -base64 32)"
            raise ValueError(msg)
        return self

    def keys(self) -> tuple[bytes, ...]:
        """The keys that sign; raises ValueError, which never shows one."""
        return keys_of(self.secrets)


class AlertSettings(Section):
    """The alerts that people get without asking."""

    enabled: bool = True
    #: By name.
    webhooks: dict[str, WebhookSettings] = Field(default_factory=dict, repr=False)
    #: ``https://…/{group}``; None: alerts have no link.
    link: str | None = Field(default=None, repr=False)
    #: How often groups are looked at.
    look_every: Span = Field(default=timedelta(seconds=5), ge=timedelta(seconds=1))
    window: Span = Field(default=timedelta(hours=1), gt=_NOTHING)
    growth_factor: float = Field(default=2.0, ge=1, allow_inf_nan=False)
    growth_least: int = Field(default=10, ge=1)
    #: The same is said again of one group no sooner.
    repeat_after: Span = Field(default=timedelta(hours=1), gt=_NOTHING)
    #: New groups within ten minutes that are told one by one.
    at_once: int = Field(default=10, ge=1)
    #: Whether each dead letter is a warning, of one group no sooner than `dead_letter_every`.
    dead_letters: bool = True
    dead_letter_every: Span = Field(default=timedelta(minutes=5), gt=_NOTHING)
    #: Runs of a handler above which its letter is an alert of its own.
    many_attempts: int = Field(default=3, ge=1)
    #: How long an entry may be open.
    oldest_after: Span = Field(default=timedelta(days=1), gt=_NOTHING)
    #: Whether the end of a cause is told.
    resolved: bool = True
    #: How long is tried to deliver an alert.
    max_age: Span = Field(default=timedelta(days=1), gt=_NOTHING)
    #: How long alerts are kept.
    keep: Span = Field(default=timedelta(days=90), gt=_NOTHING)

    @field_validator("webhooks")
    @classmethod
    def _names(cls, given: dict[str, WebhookSettings]) -> dict[str, WebhookSettings]:
        for name in given:
            if not _NAME.fullmatch(name) or name == "log":
                msg = "a webhook is named by a-z, 0-9, _ and -, and not log"
                raise ValueError(msg)
        return given

    @field_validator("link")
    @classmethod
    def _link(cls, given: str | None) -> str | None:
        if given is not None:
            from angzarr.analysis.alerts.alert_text import check_link

            check_link(given)
        return given

    @model_validator(mode="after")
    def _spans(self) -> AlertSettings:
        if self.keep < self.max_age:
            msg = "keep must not be less than max_age: alerts would be deleted before they arrive"
            raise ValueError(msg)
        return self


def _no_less_than_a_day(kept: timedelta | None) -> timedelta | None:
    if kept is not None and kept < RECORD_LIFE:
        msg = f'must be a day or longer ({RECORD_LIFE.total_seconds():.0f} seconds), or "for ever"'
        raise ValueError(msg)
    return kept


#: For a day or longer, or for ever.
KeepADay = Annotated[Span | None, BeforeValidator(kept), AfterValidator(_no_less_than_a_day)]


class AutomaticSettings(Section):
    """What the analysis worker may begin by itself, and when."""

    #: Whether a held group is replayed once its cause is gone.
    recovery: bool = True

    #: What failed longer ago is held for a person; more than `longest_wait`.
    oldest: Span = Field(default=timedelta(days=30), gt=timedelta(0))

    #: Local times at which nothing begins, e.g. ``22:00-06:00`` or ``Sat,Sun 00:00-24:00``.
    quiet_hours: tuple[str, ...] = ()
    #: Whose local time that is, as in the tz database.
    timezone: str = _UTC

    @model_validator(mode="after")
    def _check(self) -> AutomaticSettings:
        if self.quiet_hours or self.timezone != _UTC:
            said(self.quiet)
        return self

    def quiet(self) -> QuietHours:
        """The quiet hours; raises ConfigurationError for what cannot be read."""
        from angzarr.analysis.ledger.emergency_stop import QuietHours, place_of, window_of

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
    #: How long resolved, skipped and compensated entries are kept; None: for ever. No less than a
    #: day, for which claims are kept: so an event that fails anew has a letter of another day.
    keep_closed: KeepADay = Field(default=timedelta(days=30))
    keep_archived: KeepADay = Field(default=timedelta(days=180))
    #: How long replay jobs are kept after they ended; None: for ever. No less than a day, by which
    #: others are judged (`auto_replay.LEFT_TO_PEOPLE`, `job_limits.ADDED_UP`).
    keep_jobs: KeepADay = Field(default=timedelta(days=90))
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
        from angzarr.analysis.classification.rules import RULES, rules_from

        said(lambda: isinstance(rules, str) or rules_from(rules, RULES))
        return rules

    @field_validator("grouping")
    @classmethod
    def _check_grouping(cls, rules: Any) -> Any:
        from angzarr.analysis.classification.grouping import grouping_rules
        from angzarr.analysis.classification.rules import GROUPING

        said(lambda: isinstance(rules, str) or grouping_rules(rules, GROUPING))
        return rules

    def written_rules(self) -> tuple[WrittenRule, ...]:
        """The rules of the settings; raises ConfigurationError naming file, rule and key."""
        from angzarr.analysis.classification.rules import RULES, read, rules_from

        return rules_from(*read(self.rules, RULES))

    def letter_grouping(self) -> Grouping:
        """The grouping of letters; raises ConfigurationError as for rules."""
        from angzarr.analysis.classification.grouping import Grouping, grouping_rules
        from angzarr.analysis.classification.rules import GROUPING, read

        return Grouping(rules=grouping_rules(*read(self.grouping, GROUPING)), in_app=self.in_app)

    def replay_backoff(self) -> Policy:
        """The pauses between automatic replays."""
        return Policy(
            name="replay",
            base=self.first_delay,
            max_delay=max(self.first_delay, self.longest_delay),
            max_attempts=self.max_replays + 1,
        )
