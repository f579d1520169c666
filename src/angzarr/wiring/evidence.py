"""How dead letters of an app are classified, and which parts that needs (spec A3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from angzarr.analysis.classification.classify import (
    Classifier,
    Replacement,
    ReplayDelays,
    Unattended,
)
from angzarr.analysis.classification.evidence import Fit
from angzarr.analysis.classification.evidence_collector import (
    BreakerLook,
    EvidenceCollector,
    NewerRuns,
)
from angzarr.analysis.classification.rules import PythonRule, built_in_rules, in_order
from angzarr.analysis.replay.replay import Replayer
from angzarr.analysis.worker.intake import OtherApps
from angzarr.clock import Clock
from angzarr.dead_letters.letter import DeadLetter
from angzarr.dead_letters.protection import is_sealed
from angzarr.dead_letters.redaction import hides
from angzarr.delivery.poison_wave import breaker_of
from angzarr.errors import ConfigurationError, DecodeError
from angzarr.fleet import newer_releases, running_releases
from angzarr.payloads.sealed_message import is_sealed_body
from angzarr.resilience.breaker import BreakerSettings, settings_of
from angzarr.wiring import dead_letters as letter_wiring
from angzarr.wiring import ledger as ledger_wiring
from angzarr.wiring.context import AppContext
from angzarr.wiring.flow_control import breaker_settings
from angzarr.wiring.process import ProcessParts
from angzarr.wiring.protection import open_clearance


def open_classifier(
    parts: ProcessParts,
    rules: Sequence[PythonRule],
    replacement: Replacement | None,
    chance: Callable[[], float],
) -> Classifier:
    """The classifier of an app's dead letters; raises ConfigurationError."""
    parts.routing.load_tasks()
    given = parts.context.settings.analysis
    return Classifier(
        rules=in_order(given.written_rules(), rules, built_in_rules()),
        pauses=ReplayDelays(backoff=given.replay_backoff(), chance=chance),
        max_replays=min(given.max_replays, given.most_replays),
        longest_wait=given.longest_wait,
        unattended=Unattended(
            oldest=given.automatic.oldest,
            vouched=open_clearance(parts.context.settings.dlq).vouches,
            of_another=other_apps(parts.context).problem,
        ),
        replacement=replacement,
    )


class EvidenceSources:
    """What can be asked about the failures of an app."""

    def __init__(self, parts: ProcessParts) -> None:
        self._context = parts.context
        self._parts = parts

    def open_gathering(self, replayer: Replayer) -> EvidenceCollector:
        """The collector of all evidence about failures; its `peers` must be closed."""
        self._parts.routing.load_tasks()
        return EvidenceCollector(
            peers=ledger_wiring.open_part(
                ledger_wiring.PEERS, self._context.settings, self._context.broker_url
            ),
            obstacle=replayer.obstacle,
            clock=replayer.clock,
            breakers=self._breaker_look(replayer.clock),
            releases=self._newer_releases,
            decodes=self._fit,
            undone_by=self._context.handlers.compensation_of,
        )

    def _newer_releases(self) -> NewerRuns:
        """Look at the fleet once; a release is newer if all that run the handler run such a one.

        While others still run, a replay could come to one of them and fail as before.
        """
        try:
            fleet = self._parts.claims.fleet
        except ConfigurationError:  # there is no claim store, so no fleet is known here
            return lambda _handler, _release: None
        members, releases = fleet.members(), fleet.releases()

        def newer_runs(handler: str, failed: str) -> bool | None:
            running = running_releases(members, handler)
            newer = newer_releases(failed, running, releases)
            return None if newer is None else bool(newer) and newer == running

        return newer_runs

    def _breaker_look(self, clock: Clock) -> BreakerLook | None:
        controls = self._parts.flow.controls
        if controls is None:
            return None
        given, default = (
            breaker_settings(self._context),
            self._context.settings.flow.default_breaker(),
        )

        def of(name: str) -> BreakerSettings:
            return settings_of(name, given, default)

        return BreakerLook(
            controls=controls,
            names_of=self._breakers_of,
            wave_of=self._wave_of,
            settings_of=of,
            clock=clock,
        )

    def _breakers_of(self, name: str) -> tuple[str, ...] | None:
        handler: Any = self._context.handlers.get(name)
        return None if handler is None else tuple(guard.name for guard in handler.breakers)

    def _wave_of(self, name: str) -> str:
        handler: Any = self._context.handlers.get(name)
        return breaker_of(handler.domain) if handler and handler.domain else ""

    def _fit(self, letter: DeadLetter) -> Fit:
        """Whether the event decodes as its handler declares it now, and why."""
        handler: Any = self._context.handlers.get(letter.handler)
        if handler is None or handler.decode is None:
            return Fit(why="its handler declares no type here")
        if letter.event is None or letter.payload is not None:
            return Fit(why="the event is not in the letter")
        if is_sealed(letter) or is_sealed_body(letter.message.body) or hides(letter):
            return Fit(why="parts of the event are hidden")
        try:
            handler.decode(letter.event.data)
        except DecodeError as error:
            return Fit(fits=False, why=str(error))
        except Exception as error:  # noqa: BLE001 - a validator of others may do anything
            return Fit(why=f"it could not be tried: {type(error).__name__}")
        return Fit(fits=True, why="it decodes as its handler declares it now")


def other_apps(context: AppContext) -> OtherApps:
    """The rule that tells letters of other apps from those of this one."""
    reads = letter_wiring.domains_to_read(context)
    return OtherApps(context.main or "angzarr", frozenset(reads))
