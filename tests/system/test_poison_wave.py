"""A poison wave over real brokers: kept, told, and over when its cause is."""

from __future__ import annotations

import os

import pytest

import warm_process
from polling import wait_until
from system.conftest import HERE, PATH

EVENTS, LEAST = 60, 10
#: Runs that were under way when the wave was seen: the second slot's, and one that each of the two
#: had begun by then.
UNDER_WAY = 2
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
        wait_until(lambda: "consuming_stopped" in site.text(), "the queue to be closed")
        site.module.add.delay(1, 1)
        site.wait_ran("add")
        ill.unlink()
        wait_until(lambda: "consuming_resumed" in site.text(), "the queue to be opened")
        wait_until(lambda: len(well(site)) + buried(site) == EVENTS, "all to be accounted for")
        letters = {
            letter.event.data["n"]
            for letter in site.letters(f"{site.module.PREFIX}-batch", buried(site))
        }
    assert len(well(site) | letters) == EVENTS
    assert len(letters) <= LEAST - 1 + UNDER_WAY
    assert "poison_wave: nearly all" in site.text()


def test_a_wave_that_a_person_ends_is_over_at_once(site):
    prefix = site.module.PREFIX
    ill = site.journal.with_name("ill")
    ill.touch()
    long = WAVE | {"ANGZARR_POISON_WAVE__HOLD": "600"}
    with site.worker("-Q", f"{prefix}-batch", ROAD_ASYNC="0", **long):
        for n in range(EVENTS):
            site.app.publish(site.module.Batch(n=n))
        wait_until(lambda: "consuming_stopped" in site.text(), "the queue to be closed")
        ill.unlink()
        warm_process.run(
            ["angzarr", "-A", "road_app", "breaker", "reset", f"wave:{prefix}-batch"],
            folder=HERE, environment={**os.environ, **site.environment, **long, "PYTHONPATH": PATH},
            check=True,
        )  # fmt: skip
        wait_until(lambda: "consuming_resumed" in site.text(), "the queue to be opened")
        site.app.publish(site.module.Batch(n=EVENTS))
        wait_until(lambda: EVENTS in well(site), "what comes now to be handled")


def well(site):
    return {line["n"] for line in site.ran("take") if not line["ill"]}


def buried(site):
    return site.text().count("event_sent_to_dlq")


def test_the_guard_can_be_turned_off(site):
    ill = site.journal.with_name("ill")
    ill.touch()
    prefix = site.module.PREFIX
    with site.worker("-Q", f"{prefix}-batch", ANGZARR_POISON_WAVE__ENABLED="false", **WAVE):
        for n in range(40):
            site.app.publish(site.module.Batch(n=n))
        assert len(site.letters(f"{site.module.PREFIX}-batch", 40)) >= 40
