"""Alerts in this process: for tests. They are forgotten with it."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from angzarr.analysis.alerts.alert import (
    LONGEST_PAGE,
    Alert,
    Alerts,
    DeliveryState,
    DueAlert,
    Fate,
    Listed,
    Observation,
    Watch,
)
from angzarr.clock import Clock, SystemClock


@dataclass(slots=True)
class _Row:
    due_at: datetime | None
    token: str = ""
    fate: Fate = Fate.WAITING
    attempts: int = 0
    problem: str = ""


class MemoryAlerts(Alerts):
    """Fulfils `Alerts`; safe to use from many threads."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.RLock()
        self._watches: dict[str, Watch] = {}
        self._alerts: dict[str, Alert] = {}
        #: By (alert, sink).
        self._rows: dict[tuple[str, str], _Row] = {}

    def watches(self, subjects: Collection[str]) -> Mapping[str, Watch]:
        """Return the watches that there are."""
        with self._lock:
            return {one: self._watches[one] for one in subjects if one in self._watches}

    def open_watches(self, *, after: str = "", limit: int) -> Sequence[Watch]:
        """Return open watches in order."""
        return self._behind(after, limit, is_open=True)

    def closed_watches(self, *, after: str = "", limit: int) -> Sequence[Watch]:
        """Return closed watches in order."""
        return self._behind(after, limit, is_open=False)

    def forget_watches(self, watches: Sequence[Watch]) -> int:
        """Delete watches that did not change."""
        with self._lock:
            same = [one for one in watches if self._revision(one.subject) == one.revision]
            for one in same:
                del self._watches[one.subject]
            return len(same)

    def raise_(self, sightings: Sequence[Observation]) -> list[Alert]:
        """Store the sightings that nobody was faster with."""
        with self._lock:
            stored = [one for one in sightings if self._store(one.watch)]
            for watch in (watch for one in stored for watch in one.followers):
                self._store(watch)
            raised = [raised for one in stored for raised in one.raised]
            for alert, sinks in raised:
                self._alerts[alert.id] = alert
                for sink in sinks:
                    self._rows[alert.id, sink] = _Row(due_at=alert.raised_at)
            return [alert for alert, _ in raised]

    def due(self, sink: str, *, limit: int, lease: timedelta) -> list[DueAlert]:
        """Take what is due."""
        with self._lock:
            now, token = self._clock.now(), uuid.uuid4().hex
            found = [
                (self._alerts[alert_id], row)
                for (alert_id, its), row in self._rows.items()
                if its == sink and row.due_at is not None and row.due_at <= now
            ]
            found.sort(key=lambda one: (one[0].raised_at, one[0].id))
            for _, row in found[:limit]:
                row.token, row.due_at = token, now + lease
            return [
                DueAlert(alert=alert, sink=sink, token=token, attempts=row.attempts)
                for alert, row in found[:limit]
            ]

    def delivered(self, delivery: DueAlert) -> bool:
        """Note that it arrived."""
        return self._settle(delivery, Fate.DELIVERED, None, "")

    def failed(self, delivery: DueAlert, problem: str, *, again_at: datetime | None) -> bool:
        """Note that it did not arrive."""
        fate = Fate.GIVEN_UP if again_at is None else Fate.WAITING
        return self._settle(delivery, fate, again_at, problem)

    def release(self, delivery: DueAlert) -> bool:
        """Let go of what was not tried."""
        with self._lock:
            row = self._held(delivery)
            if row is not None:
                row.token, row.due_at = "", self._clock.now()
            return row is not None

    def get_alerts(self, *, limit: int = 50) -> Sequence[Listed]:
        """Return the newest alerts."""
        with self._lock:
            newest = sorted(
                self._alerts.values(), key=lambda one: (one.raised_at, one.id), reverse=True
            )
            return [Listed(one, self._told(one.id)) for one in newest[: min(limit, LONGEST_PAGE)]]

    def forget(self, before: datetime, *, limit: int) -> int:
        """Delete old alerts."""
        with self._lock:
            by_time = sorted(self._alerts.values(), key=lambda one: one.raised_at)
            old = [one.id for one in by_time if one.raised_at < before][:limit]
            for one in old:
                del self._alerts[one]
            self._rows = {key: row for key, row in self._rows.items() if key[0] in self._alerts}
            return len(old)

    def close(self) -> None:
        """Keep everything: there is nothing to let go."""

    def _behind(self, after: str, limit: int, *, is_open: bool) -> list[Watch]:
        with self._lock:
            found = [self._watches[one] for one in sorted(self._watches) if one > after]
            return [one for one in found if bool(one.open) is is_open][:limit]

    def _revision(self, subject: str) -> int:
        known = self._watches.get(subject)
        return known.revision if known else 0

    def _store(self, watch: Watch) -> bool:
        if self._revision(watch.subject) != watch.revision - 1:
            return False
        self._watches[watch.subject] = watch
        return True

    def _settle(
        self, delivery: DueAlert, fate: Fate, due_at: datetime | None, problem: str
    ) -> bool:
        with self._lock:
            row = self._held(delivery)
            if row is not None:
                attempts = delivery.attempts + 1
                self._rows[delivery.alert.id, delivery.sink] = _Row(
                    due_at, fate=fate, attempts=attempts, problem=problem
                )
            return row is not None

    def _held(self, delivery: DueAlert) -> _Row | None:
        row = self._rows.get((delivery.alert.id, delivery.sink))
        return row if row is not None and row.token == delivery.token else None

    def _told(self, alert_id: str) -> tuple[DeliveryState, ...]:
        rows = sorted((sink, row) for (its, sink), row in self._rows.items() if its == alert_id)
        return tuple(DeliveryState(sink, row.fate, row.attempts, row.problem) for sink, row in rows)
