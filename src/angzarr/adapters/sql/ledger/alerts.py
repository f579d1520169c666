"""Alerts in the ledger's database: raised once, delivered by the worker that holds them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection, delete, insert, select, update

from angzarr.adapters.sql.engine.statements import insert_into
from angzarr.adapters.sql.ledger.database import LedgerDatabase
from angzarr.adapters.sql.ledger.schema import (
    ledger_alert_deliveries,
    ledger_alert_watches,
    ledger_alerts,
)
from angzarr.analysis.alerts.alert import (
    LONGEST_PAGE,
    STORM,
    Alert,
    AlertKind,
    Alerts,
    DeliveryState,
    DueAlert,
    EntryCount,
    Fate,
    Listed,
    Observation,
    Raised,
    Watch,
)
from angzarr.analysis.alerts.alert_form import AlertSeverity
from angzarr.analysis.ledger.entry import is_known, read_word
from angzarr.clock import Clock, SystemClock

_FIELDS: Final = tuple(field.name for field in fields(Alert))
_TIMES: Final = ("raised_at", "since", "last_at")


def alert_text(alert: Alert) -> str:
    """*alert* as JSON."""
    return json.dumps(asdict(alert), default=datetime.isoformat)


def alert_from(text: str) -> Alert:
    """The alert that *text* was made from; one of a newer release says all that it must."""
    told: dict[str, Any] = json.loads(text)
    said = {name: told[name] for name in _FIELDS if name in told}
    said |= {name: datetime.fromisoformat(said[name]) for name in _TIMES}
    severity = read_word(AlertSeverity, said["severity"])
    said["severity"] = severity if is_known(severity) else AlertSeverity.ERROR
    return Alert(**said | {"kind": read_word(AlertKind, said["kind"])})


def watch_text(watch: Watch) -> str:
    """*watch* as JSON, without what has a column of its own."""
    seen = {
        "samples": [(one.at.isoformat(), one.entries) for one in watch.samples],
        "floor": watch.floor,
        "letters": watch.letters,
        "told_to": _text(watch.told_to),
        "looked_to": _text(watch.looked_to),
        "said": {kind.value: at.isoformat() for kind, at in watch.said.items()},
        "open": {kind.value: at.isoformat() for kind, at in watch.open.items()},
        "status": watch.status,
    }
    return json.dumps(seen, separators=(",", ":"))


def watch_from(subject: str, text: str, revision: int) -> Watch:
    """The watch of *subject* that *text* was made from.

    An older release did not keep how far it looked into entries: to where it counted them last.
    """
    seen: dict[str, Any] = json.loads(text)
    looked_to = seen.get("looked_to", seen["samples"][-1][0] if seen["samples"] else None)
    return Watch(
        subject=subject,
        samples=tuple(EntryCount(datetime.fromisoformat(at), n) for at, n in seen["samples"]),
        floor=seen["floor"],
        letters=seen["letters"],
        told_to=_time(seen.get("told_to")),
        looked_to=_time(looked_to),
        said=_times(seen["said"]),
        open=_times(seen["open"]),
        status=seen["status"],
        revision=revision,
    )


def _text(at: datetime | None) -> str | None:
    return at.isoformat() if at else None


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _times(said: Mapping[str, str]) -> dict[AlertKind, datetime]:
    return {read_word(AlertKind, kind): datetime.fromisoformat(at) for kind, at in said.items()}


_watches, _alerts, _deliveries = (
    ledger_alert_watches.c, ledger_alerts.c, ledger_alert_deliveries.c
)  # fmt: skip

#: Subjects asked for in one statement; databases bound its parameters.
_ASKED: Final = 500


class SqlAlerts(Alerts):
    """Fulfils `Alerts`; safe to use from threads. It goes by its worker's time."""

    def __init__(self, database: LedgerDatabase, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    def watches(self, subjects: Collection[str]) -> Mapping[str, Watch]:
        """The watches that there are."""
        names = sorted(set(subjects))

        def read(connection: Connection) -> dict[str, Watch]:
            found: dict[str, Watch] = {}
            for at in range(0, len(names), _ASKED):
                some = _watches.subject.in_(names[at : at + _ASKED])
                rows = connection.execute(select(ledger_alert_watches).where(some))
                found |= {row.subject: _watch(row) for row in rows}
            return found

        return self._database.read(read) if names else {}

    def open_watches(self, *, after: str = "", limit: int) -> Sequence[Watch]:
        """Open watches in order."""
        return self._behind(after, limit, is_open=True)

    def closed_watches(self, *, after: str = "", limit: int) -> Sequence[Watch]:
        """Closed watches in order."""
        return self._behind(after, limit, is_open=False)

    def forget_watches(self, watches: Sequence[Watch]) -> int:
        """Delete watches that did not change, always in one order."""
        ordered = sorted(watches, key=_place)

        def forget(connection: Connection) -> int:
            return sum(_forget_watch(connection, watch) for watch in ordered)

        return self._database.write(forget)

    def raise_(self, sightings: Sequence[Observation]) -> list[Alert]:
        """Store the sightings that no other worker stored before.

        Always in one order, a storm first: two workers must not wait for each other.
        """
        storms = [one for one in sightings if one.watch.subject == STORM]
        others = [one for one in sightings if one.watch.subject != STORM]

        def store(connection: Connection) -> list[Alert]:
            stored = [one for one in storms if _store_watch(connection, one.watch)]
            followers = (Observation(watch) for one in stored for watch in one.followers)
            rest = sorted([*others, *followers], key=lambda one: one.watch.subject)
            stored += [one for one in rest if _store_watch(connection, one.watch)]
            raised = [raised for one in stored for raised in one.raised]
            _store_alerts(connection, raised)
            return [one.alert for one in raised]

        return self._database.write(store) if sightings else []

    def due(self, sink: str, *, limit: int, lease: timedelta) -> list[DueAlert]:
        """Take what is due; nothing is locked where nothing is."""
        now = self._clock.now()
        is_due = (_deliveries.sink == sink) & (_deliveries.due_at <= now)
        some = select(_deliveries.alert_id).where(is_due).limit(1)
        if self._database.read(lambda connection: connection.scalar(some)) is None:
            return []
        rows = select(_deliveries.alert_id).where(is_due)
        oldest = rows.order_by(_deliveries.raised_at, _deliveries.alert_id).limit(limit)

        def take(connection: Connection) -> list[DueAlert]:
            ids = connection.scalars(oldest.with_for_update(skip_locked=True)).all()
            token = uuid.uuid4().hex
            held = (_deliveries.alert_id.in_(ids)) & (_deliveries.sink == sink)
            change = update(ledger_alert_deliveries).where(held)
            connection.execute(change.values(token=token, due_at=now + lease))
            return _held(connection, sink, token)

        return self._database.write(take)

    def delivered(self, delivery: DueAlert) -> bool:
        """Note that it arrived."""
        return self._settle(delivery, fate=Fate.DELIVERED, due_at=None, problem="")

    def failed(self, delivery: DueAlert, problem: str, *, again_at: datetime | None) -> bool:
        """Note that it did not arrive."""
        fate = Fate.GIVEN_UP if again_at is None else Fate.WAITING
        return self._settle(delivery, fate=fate, due_at=again_at, problem=problem)

    def release(self, delivery: DueAlert) -> bool:
        """Let go of what was not tried."""
        return self._change(delivery, due_at=self._clock.now())

    def get_alerts(self, *, limit: int = 50) -> Sequence[Listed]:
        """The newest alerts."""
        newest = select(_alerts.id, _alerts.said).order_by(
            _alerts.raised_at.desc(), _alerts.id.desc()
        )

        def read(connection: Connection) -> list[Listed]:
            rows = connection.execute(newest.limit(min(limit, LONGEST_PAGE))).all()
            told = _told(connection, [row.id for row in rows])
            return [Listed(alert_from(row.said), tuple(told.get(row.id, ()))) for row in rows]

        return self._database.read(read)

    def forget(self, before: datetime, *, limit: int) -> int:
        """Delete old alerts with their deliveries."""
        rows = select(_alerts.id).where(_alerts.raised_at < before)
        old = rows.order_by(_alerts.raised_at).limit(limit)
        ids = self._database.read(lambda connection: connection.scalars(old).all())
        if not ids:
            return 0
        gone = delete(ledger_alerts).where(_alerts.id.in_(ids))
        return self._database.write(lambda connection: connection.execute(gone).rowcount)

    def close(self) -> None:
        """Close the pooled connections."""
        self._database.close()

    def _behind(self, after: str, limit: int, *, is_open: bool) -> list[Watch]:
        behind = (_watches.open.is_(is_open), _watches.subject > after)
        wanted = select(ledger_alert_watches).where(*behind)
        ordered = wanted.order_by(_watches.subject).limit(limit)
        return self._database.read(lambda one: [_watch(row) for row in one.execute(ordered)])

    def _settle(self, delivery: DueAlert, **values: Any) -> bool:
        return self._change(delivery, attempts=delivery.attempts + 1, **values)

    def _change(self, delivery: DueAlert, **values: Any) -> bool:
        """Change what *delivery* holds, unless another took it meanwhile; the lease is over."""
        held = (
            (_deliveries.alert_id == delivery.alert.id)
            & (_deliveries.sink == delivery.sink)
            & (_deliveries.token == delivery.token)
        )
        change = update(ledger_alert_deliveries).where(held).values(token="", **values)
        return self._database.write(lambda one: one.execute(change).rowcount == 1)


def _place(watch: Watch) -> tuple[bool, str]:
    """The place of *watch* among those that are locked: a storm before its groups."""
    return watch.subject != STORM, watch.subject


def _store_watch(connection: Connection, watch: Watch) -> bool:
    """Store *watch* over the revision before; False: it is not there any more."""
    row = {"state": watch_text(watch), "open": bool(watch.open), "revision": watch.revision}
    if watch.revision == 1:
        new = insert_into(connection, ledger_alert_watches).values(subject=watch.subject, **row)
        stored = new.on_conflict_do_nothing().returning(_watches.subject)
        return connection.execute(stored).first() is not None
    same = (_watches.subject == watch.subject) & (_watches.revision == watch.revision - 1)
    return connection.execute(update(ledger_alert_watches).where(same).values(**row)).rowcount == 1


def _forget_watch(connection: Connection, watch: Watch) -> int:
    same = (_watches.subject == watch.subject) & (_watches.revision == watch.revision)
    return connection.execute(delete(ledger_alert_watches).where(same)).rowcount


def _store_alerts(connection: Connection, raised: Sequence[Raised]) -> None:
    if not raised:
        return
    rows = [
        {"id": one.alert.id, "raised_at": one.alert.raised_at, "said": alert_text(one.alert)}
        for one in raised
    ]
    connection.execute(insert(ledger_alerts), rows)
    deliveries = [
        {
            "alert_id": one.alert.id,
            "sink": sink,
            "raised_at": one.alert.raised_at,
            "due_at": one.alert.raised_at,
            "token": "",
            "fate": Fate.WAITING.value,
            "attempts": 0,
            "problem": "",
        }
        for one in raised
        for sink in one.sinks
    ]
    if deliveries:
        connection.execute(insert(ledger_alert_deliveries), deliveries)


def _held(connection: Connection, sink: str, token: str) -> list[DueAlert]:
    join = ledger_alert_deliveries.join(ledger_alerts)
    wanted = select(_alerts.said, _deliveries.attempts).select_from(join)
    held = wanted.where(_deliveries.sink == sink, _deliveries.token == token)
    rows = connection.execute(held.order_by(_deliveries.raised_at, _deliveries.alert_id))
    return [
        DueAlert(alert=alert_from(row.said), sink=sink, token=token, attempts=row.attempts)
        for row in rows
    ]


def _told(connection: Connection, ids: Sequence[str]) -> dict[str, list[DeliveryState]]:
    wanted = select(ledger_alert_deliveries).where(_deliveries.alert_id.in_(ids))
    found: dict[str, list[DeliveryState]] = {}
    for row in connection.execute(wanted.order_by(_deliveries.sink)):
        told = DeliveryState(row.sink, read_word(Fate, row.fate), row.attempts, row.problem)
        found.setdefault(row.alert_id, []).append(told)
    return found


def _watch(row: Any) -> Watch:
    return watch_from(row.subject, row.state, row.revision)
