"""A worker whose machine's clock is wrong goes by its claim store's, and says so."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from angzarr import clock
from angzarr.clock import SystemClock, follow
from angzarr.errors import StoreUnavailable
from angzarr.resilience.clock_watch import COMPARED_EVERY, ClockWatch

SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)
MINUTE = COMPARED_EVERY.total_seconds()


class Site:
    """A store and a machine, whose clocks a test sets, and the way between them."""

    def __init__(self) -> None:
        self.off = timedelta(0)
        self.way = 0.0
        self.asked = 0
        self.away = False
        self.monotonic = 50.0
        self.watch = ClockWatch(self._ask, own=self._own, monotonic=lambda: self.monotonic)

    def _ask(self) -> datetime:
        self.asked += 1
        if self.away:
            raise StoreUnavailable
        self.monotonic += self.way
        return datetime.now(UTC)

    def _own(self) -> datetime:
        return datetime.now(UTC) + self.off

    def in_a_minute(self) -> None:
        self.monotonic += MINUTE
        self.watch.renew()


@pytest.fixture
def site() -> Iterator[Site]:
    yield Site()
    follow(None)


def wrong_by() -> timedelta:
    return abs(SystemClock().now() - datetime.now(UTC))


def test_clocks_that_agree_are_said_to_and_the_machines_own_is_gone_by(site: Site) -> None:
    assert site.watch.condition().says == "not compared with the claim store's yet"
    site.watch.renew()
    assert site.watch.condition() == ("clock", True, "as the claim store's")
    assert abs(site.watch.ahead or HOUR) < SECOND


@pytest.mark.parametrize(("hours", "word"), [(2, "ahead of"), (-2, "behind")])
def test_a_wrong_clock_is_said_in_log_and_readiness_and_the_stores_is_gone_by(
    site: Site, caplog: pytest.LogCaptureFixture, hours: int, word: str
) -> None:
    site.off = hours * HOUR
    site.watch.renew()
    assert f"clock_skew: this machine's clock is 7200.0 s {word} the claim store's" in caplog.text
    holds, says = site.watch.condition()[1:]
    assert holds, "no restart sets a clock"
    assert says == f"7200.0 s {word} the claim store's, by which this process goes"
    assert site.watch.ahead is not None
    assert abs(site.watch.ahead - site.off) < SECOND
    assert wrong_by() < SECOND


def test_children_that_were_forked_before_go_by_it_too(site: Site) -> None:
    read, write = os.pipe()
    wait, go = os.pipe()
    if (child := os.fork()) == 0:
        os.read(wait, 1)
        os.write(write, SystemClock().now().isoformat().encode())
        os._exit(0)
    there = datetime(2031, 1, 1, tzinfo=UTC)
    follow(there)
    os.write(go, b"x")
    told = datetime.fromisoformat(os.read(read, 100).decode())
    os.waitpid(child, 0)
    for end in (read, write, wait, go):
        os.close(end)
    assert timedelta(0) <= told - there < timedelta(minutes=1)


def test_a_clock_that_was_set_right_is_gone_by_again(site: Site) -> None:
    site.off = HOUR
    site.watch.renew()
    site.off = timedelta(0)
    site.in_a_minute()
    assert site.watch.condition().says == "as the claim store's"


def test_it_is_compared_once_a_minute(site: Site) -> None:
    for _ in range(10):
        site.watch.renew()
    assert site.asked == 1
    site.in_a_minute()
    assert site.asked == 2


def test_a_slow_answer_tells_nothing(site: Site) -> None:
    site.off, site.way = HOUR, 3.0
    site.watch.renew()
    assert site.watch.ahead is None


def test_what_the_way_to_the_store_explains_is_no_difference(site: Site) -> None:
    site.off, site.way = timedelta(seconds=-0.9), 0.95
    site.watch.renew()
    assert site.watch.ahead == timedelta(0)


def test_a_store_that_is_away_costs_nothing_and_is_asked_again(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.away = True
    site.watch.renew()
    site.away = False
    site.in_a_minute()
    assert site.watch.ahead is not None
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []


def test_a_worker_that_ends_follows_no_clock(site: Site) -> None:
    site.off = HOUR
    follow(datetime(2031, 1, 1, tzinfo=UTC))
    site.watch.leave()
    assert wrong_by() < SECOND


def test_in_turns_it_compares_each_minute_and_leaves_its_clock_at_the_end(site: Site) -> None:
    site.off = HOUR
    assert site.watch.turn() == COMPARED_EVERY
    assert wrong_by() < SECOND
    site.monotonic += MINUTE
    site.watch.turn()
    assert site.asked == 2
    site.watch.leave()
    assert clock._FOLLOWED[0] != clock._FOLLOWED[0], "no clock is followed"


#: What judges times that others wrote, and so never by its machine's clock.
JUDGES = ("aggregates", "analysis", "dashboard", "dead_letters", "delivery", "ordering", "sagas")


@pytest.mark.parametrize("package", JUDGES)
def test_who_judges_times_of_others_asks_the_fleets_clock(package: str) -> None:
    machine = re.compile(r"datetime\.(now|utcnow|today)\(|time\.time\(|date\.today\(")
    for module in (Path(clock.__file__).parent / package).rglob("*.py"):
        assert not machine.search(module.read_text()), f"{module}: ask a Clock"
