"""The analysis worker and the dashboard judge what workers dated by the fleet's clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.contracts.ledger import letter_of
from tests.judging import classifier

from angzarr.analysis.ledger.entry import Status
from angzarr.clock import SystemClock
from angzarr.errors import StoreUnavailable
from angzarr.resilience.clock_watch import ClockWatch
from angzarr.wiring.analysis_worker import open_worker

DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)
OLDEST = 30 * DAY


def watch(ahead):
    """What compares a machine whose clock is *ahead* of the store's."""
    return ClockWatch(lambda: datetime.now(UTC) - ahead)


@pytest.fixture
def careful(app):
    """An app whose old letters wait for a person."""
    app.dlq_classifier = lambda chance: classifier(
        chance=chance, automatic={"oldest": OLDEST}, first_delay=timedelta(0)
    )
    return app


def statuses(app, ledger, ages, ahead):
    """Analyze letters of these *ages*, as the fleet's clock tells them; return their states."""
    now = datetime.now(UTC) - ahead
    app.queue.put([
        letter_of(f"e{n}", first_attempt_at=now - age, last_attempt_at=now - age)
        for n, age in enumerate(ages)
    ])  # fmt: skip
    with open_worker(app, ["order"]) as worker:
        worker.step()
        return {
            entry.event_id: status
            for status in (Status.RETRYING, Status.HELD)
            for entry in ledger.get_failed_events(status=status).entries
        }


@pytest.mark.parametrize("ahead", [-400 * DAY, -31 * DAY, -2 * DAY, 31 * DAY, 400 * DAY])
def test_the_age_of_letters_is_what_it_is_by_the_fleets_clock(careful, ledger, ahead):
    careful.clock = watch(ahead)
    ages = [MINUTE, OLDEST - DAY, OLDEST + DAY]
    assert statuses(careful, ledger, ages, ahead) == {
        "e0": Status.RETRYING, "e1": Status.RETRYING, "e2": Status.HELD
    }  # fmt: skip


def test_by_its_own_clock_a_machine_would_hold_what_is_new(careful, ledger):
    assert statuses(careful, ledger, [MINUTE], 31 * DAY) == {"e0": Status.HELD}


def test_it_goes_by_its_own_clock_once_it_has_ended_and_where_the_store_is_away(app):
    def away():
        raise StoreUnavailable

    app.clock = ClockWatch(away)
    with open_worker(app, ["order"]):
        assert abs(SystemClock().now() - datetime.now(UTC)) < DAY
    app.clock = watch(31 * DAY)
    with open_worker(app, ["order"]):
        assert datetime.now(UTC) - SystemClock().now() > 30 * DAY
    assert abs(SystemClock().now() - datetime.now(UTC)) < DAY
