"""The settings of dead letters: where they go, how they travel, what they may show (spec L5)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from angzarr.payload_section import PayloadSettings
from angzarr.sections import Section, checked_domain


class DeadLetterSettings(Section):
    """Where dead letters go (spec L5)."""

    backend: Literal["channel", "amqp", "kafka", "sqs", "none"] | None = None
    amqp_url: str | None = None
    kafka_brokers: str | None = None
    aws_region: str | None = None
    aws_endpoint_url: str | None = None
    #: Domains that the analysis worker reads besides those of the app's handlers.
    domains: tuple[str, ...] = ()
    #: The domain of a queue's letters where neither handler nor event names one.
    queue_domains: dict[str, str] = Field(default_factory=dict)
    #: Whether queues and topics that are missing are created; else they are checked at first use.
    create_missing: bool = True
    accept_loss: bool = False
    #: Where the bodies of letters go that are too large for their queue (spec F4).
    payloads: PayloadSettings = PayloadSettings()

    @field_validator("domains")
    @classmethod
    def _domains(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(checked_domain(name) for name in names)

    @field_validator("queue_domains")
    @classmethod
    def _queue_domains(cls, names: dict[str, str]) -> dict[str, str]:
        return {queue: checked_domain(name) for queue, name in names.items()}

    @model_validator(mode="after")
    def _complete(self) -> DeadLetterSettings:
        if self.backend == "none" and not self.accept_loss:
            msg = "backend 'none' loses every dead letter; say accept_loss: true if you mean it"
            raise ValueError(msg)
        needs = {"kafka": ("kafka_brokers", self.kafka_brokers)}
        name, value = needs.get(self.backend or "", ("", "present"))
        if not value:
            msg = f"backend {self.backend!r} needs {name}"
            raise ValueError(msg)
        return self
