"""The settings of compensation: the reaction to a saga's step that cannot be undone (spec C6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import (
    Field,
    SecretStr,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from angzarr.errors import ConfigurationError
from angzarr.sagas.rejection_answers import Flags
from angzarr.settings.base import Section, checked_domain, said
from angzarr.settings.dlq_urls import QUEUE_FORMS, QUEUE_SCHEMES, read_url
from angzarr.settings.webhooks import check_address, keys_of

#: The name of the section in the settings.
SECTION: Final = "saga_compensation"

#: Shorter variables by which some of its fields may be set, besides the usual ones.
VARIABLES: Final[Mapping[str, str]] = {
    "ANGZARR_SAGA_FALLBACK_DOMAIN": "fallback_domain",
    "ANGZARR_SAGA_FALLBACK_EMIT_SYSTEM_REVOCATION": "fallback_emit_system_revocation",
    "ANGZARR_SAGA_FALLBACK_SEND_TO_DLQ": "fallback_send_to_dlq",
    "ANGZARR_SAGA_FALLBACK_ESCALATE": "fallback_escalate",
    "ANGZARR_SAGA_DLQ_URL": "dead_letter_queue_url",
    "ANGZARR_SAGA_ESCALATION_WEBHOOK": "escalation_webhook_url",
}


class SagaCompensationSettings(Section):
    """The framework's reaction where no aggregate compensates, and where it is reported."""

    #: Where `SagaCompensationFailed` goes.
    fallback_domain: str = "angzarr.saga-failures"
    #: What is done where the aggregate answered nothing, or failed.
    fallback_emit_system_revocation: bool = True
    fallback_send_to_dlq: bool = True
    fallback_escalate: bool = True
    #: Where letters of failed compensations go instead of `dlq`.
    dead_letter_queue_url: SecretStr | None = None
    #: Where escalations are posted; None: they are logged only.
    escalation_webhook_url: SecretStr | None = None
    #: Each signs; a receiver needs to know one of them.
    escalation_webhook_secrets: tuple[SecretStr, ...] = ()
    #: A file of authorities that are trusted besides the system's.
    escalation_webhook_ca_certs: str | None = None
    #: How many sagas may follow each other from one event.
    max_depth: int = Field(default=50, ge=1)

    @field_validator("fallback_domain")
    @classmethod
    def _domain(cls, name: str) -> str:
        return checked_domain(name)

    @field_validator("dead_letter_queue_url")
    @classmethod
    def _queue(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None:
            said(lambda: _check_queue(url.get_secret_value()))
        return url

    @field_validator("escalation_webhook_url")
    @classmethod
    def _address(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None:
            check_address(url.get_secret_value())
        return url

    @model_validator(mode="after")
    def _webhook_works(self) -> SagaCompensationSettings:
        self.keys()
        with_webhook = self.escalation_webhook_secrets or self.escalation_webhook_ca_certs
        if with_webhook and self.escalation_webhook_url is None:
            msg = "escalation_webhook_secrets and escalation_webhook_ca_certs are for a webhook,"
            msg += " and escalation_webhook_url names none"
            raise ValueError(msg)
        return self

    def fallback(self) -> Flags:
        """The steps to take where no handler compensates."""
        return Flags(
            emit_system_revocation=self.fallback_emit_system_revocation,
            send_to_dead_letter_queue=self.fallback_send_to_dlq,
            escalate=self.fallback_escalate,
        )

    def keys(self) -> tuple[bytes, ...]:
        """The keys that sign escalations; raises ValueError, which never shows one."""
        return keys_of(self.escalation_webhook_secrets)


def with_short(usual: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """The values of this section in the *environment*; *usual* is by its usual variables.

    Raises ConfigurationError for a field that is said both ways with two values.
    """
    merged = dict(usual)
    for variable, field in VARIABLES.items():
        if variable not in environment:
            continue
        given = environment[variable]
        if field in usual and _read(field, usual[field]) != _read(field, given):
            whole = f"ANGZARR_{SECTION.upper()}"
            one = f"{whole}__{field.upper()}"
            msg = (
                f"the environment says {SECTION}.{field} twice, differently, by {variable} and by"
                f" {one if one in environment else whole}: keep one of them"
            )
            raise ConfigurationError(msg)
        merged[field] = given
    return merged


def _read(field: str, given: Any) -> Any:
    """*given* as its field reads it, as it is where it cannot be read."""
    kind: Any = SagaCompensationSettings.model_fields[field].annotation
    try:
        return TypeAdapter(kind).validate_python(given)
    except ValidationError:
        return given


def _check_queue(url: str) -> None:
    """Refuse a URL that is not a dead-letter queue's; the sentence repeats no URL."""
    if url.partition("://")[0] not in QUEUE_SCHEMES:
        msg = f"a dead-letter queue's URL is one of {QUEUE_FORMS}"
        raise ConfigurationError(msg)
    place = read_url(url)
    place.settings(backend=place.backend)
