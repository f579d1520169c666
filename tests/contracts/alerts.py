"""What every store of alerts must do. Subclass `AlertsContract`; give it the `alerts` fixture."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.hand_clock import START, HandClock

from angzarr.analysis.alerts.alert import (
    GROUP,
    STORM,
    Alert,
    AlertKind,
    Alerts,
    DeliveryState,
    EntryCount,
    Fate,
    Observation,
    Raised,
    Watch,
    alert_id,
)
from angzarr.analysis.alerts.alert_form import AlertSeverity

LEASE = timedelta(minutes=5)


def watch_of(name: str = "f1", revision: int = 1, **fields: object) -> Watch:
    known = {
        "subject": GROUP + name,
        "samples": (EntryCount(START, 3), EntryCount(START + timedelta(minutes=20), 9)),
        "floor": 1,
        "letters": 4,
        "said": {AlertKind.NEW_GROUP: START, AlertKind.DEAD_LETTER: START},
        "open": {AlertKind.NEW_GROUP: START},
        "status": "new",
        "revision": revision,
    }
    return Watch(**{**known, **fields})  # type: ignore[arg-type]


def alert_of(name: str = "f1", revision: int = 1, **fields: object) -> Alert:
    known = {
        "id": alert_id(AlertKind.NEW_GROUP, GROUP + name, revision, fields.get("raised_at", START)),
        "kind": AlertKind.NEW_GROUP,
        "severity": AlertSeverity.ERROR,
        "subject": GROUP + name,
        "raised_at": START,
        "since": START - timedelta(hours=1),
        "last_at": START - timedelta(minutes=1),
        "count": 3,
        "title": "New group of failures: TimeoutError in orders.sync",
        "text": "3 entries failed in a way that was not seen before.",
        "todo": "Look: angzarr dlq list --group f1",
        "link": "https://dash.test/f1",
        "fingerprint": name,
        "domain": "order",
        "handler_name": "orders.sync",
        "error_type": "TimeoutError",
    }
    return Alert(**{**known, **fields})  # type: ignore[arg-type]


def sighting_of(name: str = "f1", *sinks: str, revision: int = 1, **fields: object) -> Observation:
    raised = Raised(alert_of(name, revision, **fields), sinks or ("log",))
    return Observation(watch_of(name, revision), (raised,))


def storm_of(*followers: Watch, revision: int = 1) -> Observation:
    raised = alert_of("f1", id=f"storm-{revision}", kind=AlertKind.STORM, subject=STORM)
    return Observation(
        Watch(subject=STORM, open={AlertKind.STORM: START}, revision=revision),
        (Raised(raised, ("log",)),),
        followers,
    )


class AlertsContract:
    """The suite; `alerts` begins empty and reads `clock`."""

    @pytest.fixture
    def clock(self) -> HandClock:
        return HandClock()

    @pytest.fixture
    def alerts(self, clock: HandClock) -> Alerts:
        raise NotImplementedError

    # -- watches -------------------------------------------------------------------------------

    def test_a_watch_is_read_as_it_was_stored(self, alerts):
        alerts.raise_([Observation(watch_of())])
        assert alerts.watches([GROUP + "f1", GROUP + "f2"]) == {GROUP + "f1": watch_of()}
        assert alerts.watches([]) == {}

    def test_a_subject_may_be_any_text(self, alerts):
        name = "x" * 500 + "'; DROP é\U0001f600"
        alerts.raise_([Observation(watch_of(name))])
        assert alerts.watches([GROUP + name]) == {GROUP + name: watch_of(name)}

    def test_many_watches_are_read_at_once(self, alerts):
        names = [f"f{number:04}" for number in range(600)]
        alerts.raise_([Observation(watch_of(name)) for name in names])
        assert len(alerts.watches([GROUP + name for name in names])) == 600

    def test_closed_watches_come_in_order_and_are_forgotten(self, alerts):
        closed = [watch_of(name, open={}) for name in ("f1", "f2", "f3", "f4")]
        alerts.raise_([Observation(one) for one in (*closed, watch_of("open"))])
        first = alerts.closed_watches(limit=3)
        assert [one.subject for one in first] == [one.subject for one in closed[:3]]
        assert alerts.closed_watches(after=first[-1].subject, limit=3) == closed[3:]
        assert alerts.forget_watches(closed[:2]) == 2
        assert alerts.forget_watches(closed[:2]) == 0
        assert alerts.closed_watches(limit=9) == closed[2:]
        assert alerts.raise_([Observation(watch_of("f1"), ())]) == []
        assert alerts.watches([GROUP + "f1"])

    def test_a_watch_that_changed_meanwhile_is_not_forgotten(self, alerts):
        seen, now = watch_of(open={}), watch_of(revision=2, open={})
        alerts.raise_([Observation(seen)])
        alerts.raise_([Observation(now)])
        assert alerts.forget_watches([seen]) == 0
        assert alerts.watches([seen.subject]) == {seen.subject: now}
        assert alerts.forget_watches([now]) == 1
        assert alerts.raise_([Observation(watch_of(revision=3))]) == []
        assert alerts.watches([seen.subject]) == {}

    def test_open_watches_come_in_order_and_in_pages(self, alerts):
        alerts.raise_([Observation(watch_of(name)) for name in ("c", "a", "b")])
        alerts.raise_([Observation(watch_of("d", open={}))])
        first = alerts.open_watches(limit=2)
        assert [one.subject for one in first] == [GROUP + "a", GROUP + "b"]
        rest = alerts.open_watches(after=first[-1].subject, limit=2)
        assert [one.subject for one in rest] == [GROUP + "c"]

    def test_a_watch_whose_cause_is_gone_is_no_longer_open(self, alerts):
        alerts.raise_([Observation(watch_of())])
        alerts.raise_([Observation(watch_of(revision=2, open={}))])
        assert alerts.open_watches(limit=9) == []

    # -- raising -------------------------------------------------------------------------------

    def test_a_subject_that_was_forgotten_is_raised_again_beside_its_old_alert(self, alerts, clock):
        (first,) = alerts.raise_([Observation(watch_of(open={}), sighting_of().raised)])
        alerts.forget_watches([watch_of(open={})])
        clock.sleep(timedelta(days=31))
        (second,) = alerts.raise_([sighting_of(raised_at=clock.now()), sighting_of("f2")])[:1]
        assert (second.key, second.id != first.id) == (first.key, True)
        assert {one.alert.id for one in alerts.get_alerts()} >= {first.id, second.id}

    def test_followers_are_stored_with_a_storm_and_not_without(self, alerts):
        alerts.raise_([Observation(watch_of("f3"))])
        storm = storm_of(watch_of("f2"), watch_of("f3", revision=2))
        assert alerts.raise_([storm]) == [storm.raised[0].alert]
        found = alerts.watches([GROUP + name for name in ("f2", "f3")])
        assert sorted(one.revision for one in found.values()) == [1, 2]
        late = storm_of(watch_of("f4"), watch_of("f2", revision=2))
        assert alerts.raise_([late, sighting_of("f5")]) == [alert_of("f5")]
        found = alerts.watches([GROUP + "f2", GROUP + "f4"])
        assert [one.revision for one in found.values()] == [1]

    def test_a_follower_that_changed_meanwhile_keeps_nobody_else(self, alerts):
        alerts.raise_([Observation(watch_of("f2", status="seen before"))])
        storm = storm_of(watch_of("f2"), watch_of("f3"))
        assert alerts.raise_([storm]) == [storm.raised[0].alert]
        found = alerts.watches([GROUP + "f2", GROUP + "f3"])
        assert found[GROUP + "f2"].status == "seen before"
        assert GROUP + "f3" in found

    def test_the_same_sighting_twice_raises_one_alert(self, alerts):
        assert alerts.raise_([sighting_of()]) == [alert_of()]
        assert alerts.raise_([sighting_of()]) == []
        assert len(alerts.get_alerts()) == 1

    def test_a_sighting_of_an_older_watch_is_dropped_whole(self, alerts):
        alerts.raise_([sighting_of(), Observation(watch_of("f2"))])
        alerts.raise_([sighting_of(revision=2)])
        stale = Observation(
            watch_of(revision=2, letters=99), (Raised(alert_of(revision=9), ("log",)),)
        )
        assert alerts.raise_([stale, sighting_of("f2", revision=2)]) == [alert_of("f2", 2)]
        assert alerts.watches([GROUP + "f1"])[GROUP + "f1"].letters == 4

    def test_a_watch_cannot_skip_a_revision(self, alerts):
        assert alerts.raise_([sighting_of(revision=2)]) == []
        assert alerts.watches([GROUP + "f1"]) == {}

    def test_workers_that_see_the_same_at_once_raise_it_once(self, alerts):
        sightings = [sighting_of(f"f{number}") for number in range(8)]
        start = threading.Barrier(4)

        def see(order: int) -> list[Alert]:
            start.wait()
            return alerts.raise_(sightings if order % 2 else sightings[::-1])

        with ThreadPoolExecutor(4) as pool:
            raised = [alert.id for found in pool.map(see, range(4)) for alert in found]
        assert len(raised) == len(set(raised)) == 8
        assert len(alerts.get_alerts()) == 8

    def test_an_alert_is_read_as_it_was_raised(self, alerts):
        said = alert_of(
            resolved=True, severity=AlertSeverity.WARNING, text="é \x00 \ud800 \U0001f600"
        )
        alerts.raise_([Observation(watch_of(), (Raised(said, ("log", "ops")),))])
        ((found, told),) = alerts.get_alerts()
        assert found == said
        assert told == (
            DeliveryState("log", Fate.WAITING, 0, ""),
            DeliveryState("ops", Fate.WAITING, 0, ""),
        )

    def test_alerts_are_listed_newest_first_up_to_a_limit(self, alerts):
        for number in range(3):
            at = START + timedelta(seconds=number)
            alerts.raise_([sighting_of(f"f{number}", raised_at=at)])
        assert [one.alert.fingerprint for one in alerts.get_alerts(limit=2)] == ["f2", "f1"]

    # -- delivering ----------------------------------------------------------------------------

    def test_an_alert_is_due_for_each_of_its_sinks(self, alerts):
        alerts.raise_([sighting_of("f1", "log", "ops")])
        for sink in ("log", "ops"):
            (delivery,) = alerts.due(sink, limit=9, lease=LEASE)
            assert (delivery.alert, delivery.sink, delivery.attempts) == (alert_of(), sink, 0)
        assert alerts.due("other", limit=9, lease=LEASE) == []

    def test_the_oldest_alerts_are_taken_first(self, alerts):
        for number in (2, 0, 1):
            at = START - timedelta(seconds=10 - number)
            alerts.raise_([sighting_of(f"f{number}", raised_at=at)])
        taken = alerts.due("log", limit=2, lease=LEASE)
        assert [one.alert.fingerprint for one in taken] == ["f0", "f1"]

    def test_what_is_held_is_nobody_elses_until_the_lease_ends(self, alerts, clock):
        alerts.raise_([sighting_of()])
        assert len(alerts.due("log", limit=9, lease=LEASE)) == 1
        assert alerts.due("log", limit=9, lease=LEASE) == []
        clock.sleep(LEASE)
        assert len(alerts.due("log", limit=9, lease=LEASE)) == 1

    def test_workers_that_take_at_once_take_each_delivery_once(self, alerts):
        alerts.raise_([sighting_of(f"f{number}") for number in range(6)])
        with ThreadPoolExecutor(3) as pool:
            taken = pool.map(lambda _: alerts.due("log", limit=9, lease=LEASE), range(3))
            ids = [one.alert.id for batch in taken for one in batch]
        assert len(ids) == len(set(ids))
        ids += [one.alert.id for one in alerts.due("log", limit=9, lease=LEASE)]
        assert len(ids) == 6

    def test_what_was_delivered_is_never_due_again(self, alerts, clock):
        alerts.raise_([sighting_of("f1", "log", "ops")])
        (delivery,) = alerts.due("log", limit=9, lease=LEASE)
        assert alerts.delivered(delivery)
        clock.sleep(timedelta(days=9))
        assert alerts.due("log", limit=9, lease=LEASE) == []
        ((_, told),) = alerts.get_alerts()
        assert told == (
            DeliveryState("log", Fate.DELIVERED, 1, ""),
            DeliveryState("ops", Fate.WAITING, 0, ""),
        )

    def test_what_failed_is_due_again_at_its_time(self, alerts, clock):
        alerts.raise_([sighting_of()])
        (delivery,) = alerts.due("log", limit=9, lease=LEASE)
        later = clock.now() + timedelta(minutes=1)
        assert alerts.failed(delivery, "it answered 500", again_at=later)
        assert alerts.due("log", limit=9, lease=LEASE) == []
        clock.sleep(timedelta(minutes=1))
        (again,) = alerts.due("log", limit=9, lease=LEASE)
        assert (again.alert, again.attempts) == (alert_of(), 1)
        ((_, told),) = alerts.get_alerts()
        assert told == (DeliveryState("log", Fate.WAITING, 1, "it answered 500"),)

    def test_what_is_given_up_is_kept_and_never_due_again(self, alerts, clock):
        alerts.raise_([sighting_of()])
        (delivery,) = alerts.due("log", limit=9, lease=LEASE)
        assert alerts.failed(delivery, "it answered 410", again_at=None)
        clock.sleep(timedelta(days=9))
        assert alerts.due("log", limit=9, lease=LEASE) == []
        ((_, told),) = alerts.get_alerts()
        assert told == (DeliveryState("log", Fate.GIVEN_UP, 1, "it answered 410"),)

    def test_what_is_released_is_due_at_once_and_used_no_attempt(self, alerts):
        alerts.raise_([sighting_of()])
        (delivery,) = alerts.due("log", limit=9, lease=LEASE)
        assert alerts.release(delivery)
        (again,) = alerts.due("log", limit=9, lease=LEASE)
        assert again.attempts == 0

    def test_a_late_holder_changes_nothing(self, alerts, clock):
        alerts.raise_([sighting_of()])
        (late,) = alerts.due("log", limit=9, lease=LEASE)
        clock.sleep(LEASE)
        (owner,) = alerts.due("log", limit=9, lease=LEASE)
        assert not alerts.delivered(late)
        assert not alerts.failed(late, "no", again_at=None)
        assert not alerts.release(late)
        assert not alerts.delivered(replace(owner, sink="ops"))
        assert alerts.delivered(owner)
        assert not alerts.delivered(owner)

    # -- forgetting ----------------------------------------------------------------------------

    def test_old_alerts_are_forgotten_the_oldest_first(self, alerts):
        for number in range(3):
            at = START + timedelta(days=number)
            alerts.raise_([sighting_of(f"f{number}", raised_at=at)])
        assert alerts.forget(START + timedelta(days=2), limit=1) == 1
        assert [one.alert.fingerprint for one in alerts.get_alerts()] == ["f2", "f1"]
        assert alerts.forget(START + timedelta(days=2), limit=9) == 1
        assert alerts.forget(START + timedelta(days=2), limit=9) == 0
        (left,) = alerts.get_alerts()
        assert left.alert.fingerprint == "f2"

    def test_a_forgotten_alert_is_not_raised_again(self, alerts):
        alerts.raise_([sighting_of()])
        alerts.forget(START + timedelta(days=1), limit=9)
        assert alerts.raise_([sighting_of()]) == []
