"""The settings of alerts: what is worth one, and where they go (spec A5)."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from pydantic import Field, SecretStr, field_validator, model_validator

from angzarr.analysis.alerts.alert import AlertSeverity, BodyFormat
from angzarr.analysis.alerts.alert_text import check_link
from angzarr.settings.base import Section, Span
from angzarr.settings.webhooks import check_address, keys_of

_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_NOTHING: Final = timedelta(0)


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
        """Return the keys that sign; raises ValueError, which never shows one."""
        return keys_of(self.secrets)


class AlertSettings(Section):
    """What people are told of without asking."""

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
            check_link(given)
        return given

    @model_validator(mode="after")
    def _spans(self) -> AlertSettings:
        if self.keep < self.max_age:
            msg = "keep must not be less than max_age: alerts would be deleted before they arrive"
            raise ValueError(msg)
        return self
