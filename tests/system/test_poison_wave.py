"""A poison wave over real brokers: kept, told, and over when its cause is."""

from __future__ import annotations

import pytest

from system.conftest import wait_for

EVENTS, LEAST = 60, 10
#: Each process counts for itself.
PROCESSES = {"prefork": 2, "threads": 1}
WAVE = {"ANGZARR_POISON_WAVE__LEAST": str(LEAST), "ANGZARR_POISON_WAVE__HOLD": "3"}


@pytest.mark.parametrize(
    ("site", "pool"),
    [("redis", "prefork"), ("redis", "threads"), ("amqp", "prefork"), ("sqs", "prefork")],
    indirect=["site"],
)
def test_a_wave_is_kept_and_everything_is_handled_once_its_cause_is_mended(site, pool):
    prefix = site.module.PREFIX
    ill = site.journal.with_name("ill")
    ill.touch()
    # The fixture's site has made its app: what a worker is told goes through its environment.
    with site.worker("-Q", f"{prefix},{prefix}-batch", pool=pool, ROAD_ASYNC="0", **WAVE):
        for n in range(EVENTS):
            site.app.publish(site.module.Batch(n=n))
        wait_for(lambda: "consuming_stopped" in site.text(), 30, "the queue to be closed")
        site.module.add.delay(1, 1)
        site.wait_ran("add", seconds=10)
        ill.unlink()
        wait_for(lambda: "consuming_resumed" in site.text(), 30, "the queue to be opened")
        most = PROCESSES[pool] * (LEAST - 1)
        wait_for(lambda: len(well(site)) >= EVENTS - most, 60, "the rest to be handled")
        buried = EVENTS - len(well(site))
        letters = {letter.event.data["n"] for letter in site.letters("batch", buried)}
        wait_for(lambda: len(well(site) | letters) == EVENTS, 60, "all to be accounted for")
    assert len(letters) <= most
    assert not well(site) & letters
    assert "poison_wave: nearly all" in site.text()


def well(site):
    return {line["n"] for line in site.ran("take") if not line["ill"]}


def test_the_guard_can_be_turned_off(site):
    ill = site.journal.with_name("ill")
    ill.touch()
    prefix = site.module.PREFIX
    with site.worker("-Q", f"{prefix}-batch", ANGZARR_POISON_WAVE__ENABLED="false", **WAVE):
        for n in range(40):
            site.app.publish(site.module.Batch(n=n))
        assert len(site.letters("batch", 40)) >= 40
