"""What one process of an app opens, each once, when it is first used."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from celery import Celery

from angzarr.adapters.celery.publish.routing import CeleryRouting
from angzarr.delivery.schedule import OpenSchedule
from angzarr.errors import ConfigurationError
from angzarr.facts.fact import FactLog
from angzarr.projections.checkpoint import OrderingStores
from angzarr.resilience.claim_memory import LEASE, Tenure
from angzarr.runtime.processes import OncePerProcess
from angzarr.sagas.outbox import Outbox
from angzarr.settings.sagas import SECTION, SagaCompensationSettings
from angzarr.wiring import stores as wiring
from angzarr.wiring.configuration import open_reader
from angzarr.wiring.context import AppContext
from angzarr.wiring.delivery import (
    build_chains,
    build_executor,
    build_offloader,
    build_reacting,
    build_salvage,
    build_settlement,
    open_schedule,
)
from angzarr.wiring.event_store import open_ordering
from angzarr.wiring.facts import open_facts
from angzarr.wiring.flow_control import Flow, open_flow
from angzarr.wiring.payloads import open_for_messages, open_sealer


class ProcessParts:
    """The connections of a process and what works over them; a forked child makes its own."""

    def __init__(self, context: AppContext, celery: Celery, outbox: Outbox) -> None:
        self.context = context
        self.celery = celery
        self.routing = CeleryRouting(celery, context)
        #: Whether it is a worker's: a fleet of workers moves the facts that are kept with claims.
        self.works = False
        #: What sends commands and notifications.
        self.outbox = outbox
        self.chains = OncePerProcess(lambda: build_chains(self))
        self.reacting = OncePerProcess(lambda: build_reacting(self))
        self.salvage = OncePerProcess(lambda: build_salvage(self))
        self.settlement = OncePerProcess(lambda: build_settlement(self))
        #: What posts escalations.
        self.poster = OncePerProcess(lambda: open_poster(context.settings.saga_compensation))
        self.executor = OncePerProcess(lambda: build_executor(self))
        #: Where the bodies of large messages are; None: nowhere.
        self.payloads = OncePerProcess(
            lambda: open_for_messages(context.settings, context.broker_url)
        )
        #: What encrypts bodies and opens them; None: there are no keys.
        self.sealer = OncePerProcess(lambda: open_sealer(context.settings))
        self.offloader = OncePerProcess(lambda: build_offloader(self))
        self._schedule = OncePerProcess(lambda: open_schedule(context))
        self._claims = OncePerProcess(
            lambda: wiring.open_claims(context.settings, context.broker_url)
        )
        #: What reads configurations; raises ConfigurationError where they have no store.
        self.configuration = OncePerProcess(lambda: open_reader(context))
        self._tenure = OncePerProcess(lambda: Tenure(self.claims.leases, span=lease_of(celery)))
        self._flow = OncePerProcess(lambda: open_flow(context, lambda: self.facts))
        self._facts = OncePerProcess(
            lambda: open_facts(
                context.settings, context.broker_url, (lambda: self.claims) if self.works else None
            )
        )
        self._ordering = OncePerProcess(lambda: open_ordering(context.settings, context.broker_url))

    @property
    def claims(self) -> wiring.Claims:
        """Where this process claims events; its executor and its lease share it."""
        return self._claims.get()

    @property
    def tenure(self) -> Tenure:
        """Until when this process may rely on the lease of its worker."""
        return self._tenure.get()

    @property
    def schedule(self) -> OpenSchedule:
        """Where this process lets messages wait, and moves them on from."""
        return self._schedule.get()

    @property
    def flow(self) -> Flow:
        """The flow control of this process, which the fleet shares where it can."""
        return self._flow.get()

    @property
    def facts(self) -> FactLog:
        """Where this process appends facts that belong to no delivery."""
        return self._facts.get()

    @property
    def ordering(self) -> OrderingStores:
        """Where this process keeps lanes and checkpoints; raises ConfigurationError."""
        return self._ordering.get()

    def leave_claims(self) -> None:
        """Let a next worker of this process claim anew."""
        self._claims.forget()
        self._tenure.forget()

    def close(self) -> None:
        """Close what was opened; a later use opens it again."""
        closed: tuple[OncePerProcess[Any], ...] = (
            self.executor, self.chains, self.salvage, self._flow, self._facts, self.poster,
            self._ordering, self.configuration, self.payloads,
        )  # fmt: skip
        self.offloader.forget()
        for made in (kept.forget() for kept in closed):
            if made is not None:
                made.close()


def lease_of(celery: Celery) -> timedelta:
    """How long a worker counts as alive after its last sign of life.

    A Redis broker's shorter `lease` counts for the claims too: both may renew the same key. Raises
    ConfigurationError for a `lease` that is no number above 0.
    """
    given = (celery.conf.broker_transport_options or {}).get("lease")
    if given is None:
        return LEASE
    try:
        seconds = float(given)
    except (TypeError, ValueError):
        seconds = 0.0
    if not seconds > 0:
        msg = f"broker_transport_options['lease'] must be seconds, more than 0; got {given!r}"
        raise ConfigurationError(msg)
    return timedelta(seconds=min(seconds, LEASE.total_seconds()))


def open_poster(given: SagaCompensationSettings) -> Any:
    """A poster to the webhook that *given* names.

    Raises MissingExtra, ConfigurationError for certificates that cannot be read.
    """
    adapter = wiring.adapter("angzarr.adapters.http.poster", "httpx")
    assert given.escalation_webhook_url is not None  # noqa: S101 - who asks has looked
    try:
        return adapter.Poster(
            given.escalation_webhook_url.get_secret_value(),
            keys=given.keys(),
            ca_certs=given.escalation_webhook_ca_certs,
        )
    except OSError as error:
        msg = f"{SECTION}.escalation_webhook_ca_certs cannot be read as certificates"
        raise ConfigurationError(msg) from error
