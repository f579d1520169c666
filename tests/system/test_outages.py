"""Outages: whatever is away for a while, alone or with another, costs time and nothing else.

``ANGZARR_TEST_OUTAGE`` says for how many seconds, and that the whole matrix is wanted.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from fair_time import slowness
from polling import wait_until

OUTAGE = float(os.environ.get("ANGZARR_TEST_OUTAGE", "6"))
EVENTS = 90
FATES = ["fine", "slow", "flaky", "slow", "give up", "slow"]
#: Lines that Celery and kombu may write about one outage: that it is lost, what runs meanwhile,
#: and, every so many seconds, "trying again in 2, 4, 6 … seconds".
MOST_OF_CELERYS, EVERY = 8, 4.0
#: Share of one core that a worker's processes together may use while they can do nothing.
MOST_CPU = 0.1
#: CPU seconds of a normal machine for noticing it, and for each event that is handled all the same.
NOTICING = 0.5
AN_EVENT = 0.02


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
def site_on(make_site, request, redis_url, amqp_url, postgresql_url, cables):
    def sqs(name: str) -> str:
        return cables.through(name, request.getfixturevalue("sqs_endpoint"))

    def make(broker: str, store: str, letters: str):
        if broker == "sqs":
            at = urlsplit(sqs("broker"))
            url = f"sqs://{os.environ['AWS_ACCESS_KEY_ID']}:test@{at.hostname}:{at.port}"
        else:
            url = cables.through("broker", {"redis": redis_url, "amqp": amqp_url}[broker])
        stores = {"redis": redis_url, "sql": postgresql_url}
        return make_site(
            broker=url,
            store=url if store == "the broker" else cables.through("store", stores[store]),
            ROAD_DLQ=json.dumps(
                {"backend": "sqs", "aws_endpoint_url": sqs("letters")}
                if letters == "sqs"
                else {"backend": "amqp", "amqp_url": cables.through("letters", amqp_url)}
            ),
            ANGZARR_FACTS__URL=cables.through("facts", postgresql_url),
            ROAD_SIGNED="1",
        )

    return make


class Cell(NamedTuple):
    """What is away and how, of which servers, in which pool."""

    broker: str
    away: str
    how: str
    store: str = "redis"
    letters: str = "amqp"
    pool: str = "prefork"


OUTAGES = [
    Cell("redis", "store", "stall"),
    Cell("redis", "broker", "cut", store="the broker"),
    Cell("redis", "broker+letters", "cut", store="the broker"),
    Cell("amqp", "broker", "cut"),
    Cell("amqp", "letters", "stall"),
    Cell("amqp", "facts", "cut"),
    Cell("amqp", "broker+store", "cut"),
    Cell("amqp", "store+letters", "cut"),
    Cell("amqp", "store", "cut", store="sql", pool="threads"),
    Cell("amqp", "letters", "cut", letters="sqs"),
    Cell("redis", "broker", "cut", store="the broker", pool="solo"),
]
#: The rest of the matrix, for the long form.
MORE = [
    Cell("redis", "broker", "cut"),
    Cell("redis", "store", "cut"),
    Cell("redis", "broker+store", "stall"),
    Cell("redis", "broker", "stall", store="the broker"),
    Cell("amqp", "store", "cut"),
    Cell("amqp", "letters", "cut"),
    Cell("amqp", "broker", "stall"),
    Cell("amqp", "store", "stall"),
    Cell("amqp", "store", "cut", store="sql"),
    Cell("amqp", "store", "stall", store="sql"),
    Cell("amqp", "broker", "cut", pool="threads"),
    Cell("amqp", "letters", "stall", letters="sqs"),
    Cell("amqp", "store+letters", "cut", pool="threads"),
    Cell("amqp", "store", "cut", pool="solo"),
    Cell("redis", "broker", "cut", store="the broker", pool="threads"),
    Cell("sqs", "broker", "cut"),
    Cell("sqs", "broker", "stall"),
    Cell("sqs", "store", "cut"),
]
if "ANGZARR_TEST_OUTAGE" in os.environ:
    OUTAGES += MORE


@pytest.mark.parametrize("cell", OUTAGES, ids=lambda cell: "-".join(cell).replace(" ", "_"))
def test_what_is_away_costs_time_and_nothing_else(site_on, cables, cell):
    site = site_on(cell.broker, cell.store, cell.letters)
    with site.worker(pool=cell.pool) as worker:
        published = publish(site)
        wait_until(lambda: len(handled(site)) >= 10, "ten events handled")
        said, cpu, failed = len(site.text()), cpu_of_tree(worker.pid), time.monotonic()
        worked = len(handled(site))
        cables.fail(cell.away, cell.how)
        time.sleep(OUTAGE)
        cpu = cpu_of_tree(worker.pid) - cpu
        good = {n for n, fate in published.items() if fate != "give up"}
        before = min(len(handled(site)), len(good) - 1)  # nothing may have waited for it
        worked = len(handled(site)) - worked
        cables.mend()
        mended = time.monotonic()
        wait_until(lambda: len(handled(site)) > before, "the first event after the outage")
        lasted, recovered = time.monotonic() - failed, time.monotonic() - mended
        wait_until(lambda: set(handled(site)) == good, "all good events handled")
        assert buried(site, len(published) - len(good)) == set(published) - good
        assert worker.poll() is None
        lines, minutes = list(complaints(site.text()[said:])), (time.monotonic() - failed) / 60
    repeated = {n: times for n, times in handled(site).items() if times > 1}
    ours = Counter(line[:3] for line in lines if line.logger.startswith("angzarr"))
    others = [line for line in lines if not line.logger.startswith("angzarr")]
    print(f"\n{cell} {OUTAGE:g} s: back in {recovered:.1f} s, {cpu:.2f} CPU s,"  # noqa: T201
          f" {ours.total()} + {len(others)} lines, repeated {len(repeated)}")  # fmt: skip
    assert len(repeated) <= 2, f"only what was running when it was cut off may repeat: {repeated}"
    assert max(ours.values(), default=0) <= 1 + minutes, f"one a minute, cause, process: {ours}"
    assert len(others) <= MOST_OF_CELERYS + lasted / EVERY, "\n".join(map(str, others))
    allowed = MOST_CPU * OUTAGE + NOTICING + AN_EVENT * worked
    assert cpu <= allowed * slowness(), "waiting is no hot loop"


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
        found |= {letter.event.data["n"] for letter in site.letters("thing")}
    return found


def handled(site) -> Counter[int]:
    return Counter(line["n"] for line in site.ran("handled"))


class Complaint(NamedTuple):
    """A line of the log: who said it, of what (its first word), and all of it."""

    process: str
    logger: str
    cause: str
    text: str


#: How the lines begin that are about one event, outage or not; `process_lost` is one that ran in
#: a child when RabbitMQ took its message back.
USUAL = ("event_sent_to_dlq", "retrying_after_failure", "process_lost", "Task road_app.")
LEVELS = {"warning", "error", "critical"}


def complaints(text: str) -> Iterator[Complaint]:
    """Yield the lines of the log that are no plain course of events.

    What is no line of a logger, such as a traceback, counts as said by nobody.
    """
    for line in filter(str.strip, text.splitlines()):
        process, _, said = line.partition(" ")
        if not said.startswith("{"):
            yield Complaint("", "", "", line)
            continue
        fields = json.loads(said)
        if fields["level"] in LEVELS and not fields["event"].startswith(USUAL):
            (cause,) = re.match(r"\W*(\w*)", fields["event"]).groups()
            yield Complaint(process, fields["logger"], cause, fields["event"][:300])


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
