"""Outages: whatever is away for a while, alone or with another, costs time and nothing else.

``ANGZARR_TEST_OUTAGE`` says for how many seconds, and that the whole matrix is wanted.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest

from system.conftest import wait_for

OUTAGE = float(os.environ.get("ANGZARR_TEST_OUTAGE", "6"))
EVENTS = 90
FATES = ["fine", "slow", "flaky", "slow", "give up", "slow"]
#: Lines of a worker about one outage: its processes, each once a minute and cause, and Celery's
#: own "trying again in 2, 4, 6 … seconds".
MOST_LINES = 40 + OUTAGE
#: Share of one core that a worker of three processes may use while it can do nothing.
MOST_CPU = 0.5


class Cables:
    """A proxy before each server of a site, by name."""

    def __init__(self, cable) -> None:
        self._cable = cable
        self._proxies = {}

    def through(self, name: str, url: str) -> str:
        """Return *url* by way of the cable *name*; two names of one server are two cables."""
        self._proxies[name], by_way = self._cable(url)
        return by_way

    def fail(self, names: str, how: str) -> None:
        for name in names.split("+"):
            getattr(self._proxies[name], how)()

    def mend(self) -> None:
        for proxy in self._proxies.values():
            proxy.mend()


@pytest.fixture
def cables(cable):
    return Cables(cable)


@pytest.fixture
def site_on(make_site, redis_url, amqp_url, postgresql_url, cables):
    def make(broker: str):
        kind, _, riding = broker.partition("+")
        url = cables.through("broker", {"redis": redis_url, "amqp": amqp_url}[kind])
        return make_site(
            broker=url,
            store=url if riding else cables.through("store", redis_url),
            letters=cables.through("letters", amqp_url),
            ANGZARR_FACTS__URL=cables.through("facts", postgresql_url),
        )

    return make


#: Broker (``redis+one``: it is the store as well), what is away, how.
OUTAGES = [
    ("redis", "store", "stall"),
    ("redis+one", "broker", "cut"),
    ("redis+one", "broker+letters", "cut"),
    ("amqp", "broker", "cut"),
    ("amqp", "letters", "stall"),
    ("amqp", "facts", "cut"),
    ("amqp", "broker+store", "cut"),
    ("amqp", "store+letters", "cut"),
]
#: The rest of the matrix, for the long form.
MORE = [
    ("redis", "broker", "cut"),
    ("redis", "store", "cut"),
    ("redis", "broker+store", "stall"),
    ("redis+one", "broker", "stall"),
    ("amqp", "store", "cut"),
    ("amqp", "letters", "cut"),
    ("amqp", "broker", "stall"),
    ("amqp", "store", "stall"),
]
if "ANGZARR_TEST_OUTAGE" in os.environ:
    OUTAGES += MORE


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("broker", "away", "how"), OUTAGES)
def test_what_is_away_costs_time_and_nothing_else(site_on, cables, broker, away, how):
    site = site_on(broker)
    with site.worker() as worker:
        published = publish(site)
        wait_for(lambda: len(handled(site)) >= 10, what="ten events handled")
        lines, cpu = len(complaints(site)), cpu_of_tree(worker.pid)
        cables.fail(away, how)
        time.sleep(OUTAGE)
        lines, cpu = len(complaints(site)) - lines, cpu_of_tree(worker.pid) - cpu
        good = {n for n, fate in published.items() if fate != "give up"}
        before = min(len(handled(site)), len(good) - 1)  # nothing may have waited for it
        cables.mend()
        mended = time.monotonic()
        wait_for(lambda: len(handled(site)) > before, 60, "the first event after the outage")
        recovered = time.monotonic() - mended
        wait_for(lambda: set(handled(site)) == good, 60, "all good events handled")
        assert buried(site, len(published) - len(good)) == set(published) - good
        assert worker.poll() is None
    repeated = {n: times for n, times in handled(site).items() if times > 1}
    assert len(repeated) <= 2, f"only what was running when it was cut off may repeat: {repeated}"
    assert lines <= MOST_LINES, complaints(site)[-lines:]
    assert cpu <= MOST_CPU * OUTAGE + 0.5, "waiting is no hot loop"
    print(f"\n{broker} {away} {how} {OUTAGE:g} s: back in {recovered:.1f} s, {lines} lines,"  # noqa: T201
          f" {cpu:.2f} CPU s, repeated {len(repeated)}")  # fmt: skip


def publish(site) -> dict[int, str]:
    """Publish EVENTS of all fates and return what each is to become."""
    fates = {n: FATES[n % len(FATES)] for n in range(EVENTS)}
    for n, fate in fates.items():
        event = site.module.Thing(n=n, fate=fate, seconds=0.05)
        site.app.publish(event, id=f"{site.module.PREFIX}-{n}")
    return fates


def buried(site, number: int) -> set[int]:
    """Return whose letters there are; one whose confirmation was lost may be there twice."""
    found: set[int] = set()
    while len(found) < number:
        found |= {letter.event.data["n"] for letter in site.letters("thing", seconds=60)}
    return found


def handled(site) -> Counter[int]:
    return Counter(line["n"] for line in site.ran("handled"))


def complaints(site) -> list[str]:
    """Return the lines of the log that are no plain course of events."""
    levels = ('"level": "warning"', '"level": "error"', '"level": "critical"')
    usual = ("event_sent_to_dlq", "retrying_after_failure", '"event": "fact"', "raised unexpected")
    return [
        line
        for line in site.text().splitlines()
        if any(level in line for level in levels) and not any(word in line for word in usual)
    ]


def cpu_of_tree(pid: int) -> float:
    """Return the CPU seconds that *pid* and its living children have used."""
    ticks = os.sysconf("SC_CLK_TCK")
    total = 0.0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(stat.parent.name) == pid or int(fields[1]) == pid:
            total += (int(fields[11]) + int(fields[12])) / ticks
    return total
