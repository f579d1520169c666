"""What the doctor asks of servers: it only reads, and judges nothing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Final

from celery import Celery

from angzarr.settings.settings import Settings
from angzarr.wiring.operations import Operations

#: How long one server may take to answer.
ANSWER: Final = timedelta(seconds=4)


@dataclass(frozen=True, kw_only=True)
class DoctorTarget:
    """An app, and what only a person knows of it."""

    app: Celery
    #: How long a server may take.
    timeout: timedelta = ANSWER
    #: RabbitMQ's management interface; None: where it usually is.
    management: str | None = None
    #: How long a pod may take to end.
    grace: timedelta | None = None
    #: The longest countdown or eta that is published.
    longest_delay: timedelta | None = None

    @cached_property
    def ours(self) -> bool:
        """Whether it is an Angzarr app."""
        return isinstance(getattr(self.app, "settings", None), Settings)

    @property
    def ops(self) -> Operations:
        """What operators do with an Angzarr app."""
        ops: Operations = self.app.ops
        return ops

    @property
    def settings(self) -> Settings:
        """The settings of an Angzarr app."""
        settings: Settings = self.app.settings
        return settings

    @cached_property
    def at(self) -> str:
        """How findings name the app."""
        return f"app {self.app.main or 'celery'}"

    @cached_property
    def broker_url(self) -> str:
        """The broker's URL, with the default that Celery would use."""
        given = self.app.conf.broker_url or "amqp://guest@localhost//"
        return str(given if isinstance(given, str) else ";".join(given))
