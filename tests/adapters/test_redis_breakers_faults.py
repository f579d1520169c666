"""Breakers whose store is away, hangs, comes back empty or holds something else."""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
import redis
from tests.contracts.breakers import (
    AT_ONCE,
    DEFAULTS,
    LONG,
    SHORT,
    TOUCHY,
    Diary,
    call,
    fresh,
    phase,
    refused,
)
from tools.tcp_proxy import unused_port

from angzarr.adapters.redis import flow_line
from angzarr.adapters.redis.breaker import RedisBreakers
from angzarr.adapters.redis.flow_line import FlowLine
from angzarr.errors import StoreUnavailable
from angzarr.resilience.breaker import Barred, BreakerSettings, Permit, Phase
from angzarr.runtime.processes import OncePerProcess
from polling import wait_until

QUICK = BreakerSettings(
    min_calls=1, failures_in_a_row=1, open_for=SHORT, ramp_up=AT_ONCE, probe_lease=LONG
)


@pytest.fixture
def make_breakers():
    """Start what one process has: its breakers, on a line of its own."""
    with ExitStack() as stack:

        def make(url, default=DEFAULTS, prefix=None, monotonic=time.monotonic):
            line = FlowLine(url, prefix=prefix or fresh(), monotonic=monotonic)
            stack.callback(line.close)
            breakers = RedisBreakers(line, default=default, watch=Diary())
            breakers.line = line
            return breakers

        yield make


def let_pass(span):
    time.sleep(span.total_seconds() + 0.02)  # times are told in whole milliseconds


def said(caplog, word):
    return [one for one in caplog.records if one.message.startswith(word)]


def in_a_row(breakers, name="crm"):
    return breakers.states()[name].in_a_row


# -- away ------------------------------------------------------------------------------------------


def test_without_its_store_a_process_lets_all_calls_through(make_breakers, caplog):
    breakers = make_breakers(f"redis://127.0.0.1:{unused_port()}", TOUCHY)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: call(breakers, f"dependency {n % 20}", "-+-"), range(400)))
    assert breakers.known("crm") is None
    assert breakers.phases() == {}
    assert len(said(caplog, "flow_store_away: ")) == 1
    for ask in (breakers.states, lambda: breakers.isolate("crm", by="ann")):
        with pytest.raises(StoreUnavailable):
            ask()


def test_a_store_that_is_cut_off_is_found_again_and_old_outcomes_are_not_told(
    make_breakers, proxy, redis_url, caplog
):
    prefix = fresh()
    breakers = make_breakers(proxy.url, TOUCHY, prefix)
    call(breakers, "crm", "--+-")
    proxy.cut()
    call(breakers, "crm", "-" * 50)
    assert isinstance(breakers.known("crm"), Permit)
    wait_until(lambda: breakers.line.away, "it is away")
    call(breakers, "crm", "-" * 50)
    proxy.mend()
    wait_until(lambda: not breakers.line.away, "it is back")
    other = make_breakers(redis_url, TOUCHY, prefix)
    assert phase(other, "crm") is Phase.CLOSED
    call(breakers, "crm", "+---")
    assert phase(other, "crm") is Phase.OPEN
    assert len(said(caplog, "flow_store_away: ")) == 1


def test_an_open_breaker_stays_so_until_its_time_is_up_and_an_isolated_one_stays(
    make_breakers, proxy, redis_url
):
    breakers = make_breakers(proxy.url, QUICK)
    for name in ("crm", "held"):
        call(breakers, name, "+")
    breakers.isolate("held", by="ann")
    call(breakers, "crm", "-")
    proxy.cut()
    assert isinstance(breakers.known("crm"), Barred)
    assert refused(breakers, "crm")
    let_pass(SHORT)
    call(breakers, "crm", "-" * 20)
    call(breakers, "crm", "+" * 20)
    assert breakers.phases()["crm"] is Phase.OPEN
    assert refused(breakers, "held")
    proxy.mend()
    wait_until(lambda: not breakers.line.away, "it is back")
    probe = breakers.admit("crm", "probe")
    assert isinstance(probe, Permit)
    assert probe.probe == "probe"
    assert refused(breakers, "crm")
    assert refused(breakers, "held")


def test_a_probe_under_way_when_the_store_goes_ends_with_its_lease(make_breakers, proxy, redis_url):
    lease = BreakerSettings(min_calls=1, failures_in_a_row=1, open_for=SHORT, probe_lease=SHORT)
    prefix = fresh()
    breakers = make_breakers(proxy.url, lease, prefix)
    other = make_breakers(redis_url, lease, prefix)
    call(breakers, "crm", "-")
    let_pass(SHORT)
    probe = breakers.admit("crm", "lost")
    assert isinstance(other.admit("crm", "mine"), Barred)
    proxy.cut()
    breakers.record(probe, ok=False, took=AT_ONCE)
    wait_until(lambda: isinstance(other.admit("crm", "mine"), Permit), "the lease ended")


def test_a_store_that_hangs_holds_up_few_calls(make_redis, make_breakers, caplog):
    server = make_redis()
    breakers = make_breakers(server.url, BreakerSettings(min_calls=10**6))
    call(breakers, "crm", "+-")
    server.pause()

    def fail(_):
        call(breakers, "crm", "-" * 50)

    begun = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(fail, range(64)))
    # 3200 calls: they would take 200 s if each were held up, for a reply.
    assert time.monotonic() - begun < 60
    assert len(said(caplog, "flow_store_away: ")) == 1
    server.resume()
    wait_until(lambda: not breakers.line.away, "it answers again")
    before = in_a_row(breakers)
    call(breakers, "crm", "-")
    assert in_a_row(breakers) == before + 1


def test_a_change_whose_reply_was_lost_is_told_once(make_breakers, proxy):
    breakers = make_breakers(proxy.url, QUICK)
    call(breakers, "crm", "+")
    told = breakers._watch.changes
    proxy.lose_replies(b"report")
    call(breakers, "crm", "-")
    assert [change.after for change in told] == [Phase.OPEN]
    let_pass(SHORT)
    proxy.lose_replies(b"admit")
    probe = breakers.admit("crm", "probe")
    assert isinstance(probe, Permit)
    proxy.lose_replies(b"probed")
    breakers.record(probe, ok=False, took=AT_ONCE)
    assert [change.after for change in told] == [Phase.OPEN, Phase.HALF_OPEN, Phase.OPEN]
    assert list(breakers.history(9)) == told
    assert not breakers.line.away


# -- changes that are not pushed -------------------------------------------------------------------


def test_an_opening_is_pushed(make_breakers, redis_url, monkeypatch):
    """On a machine that has just started, too: it looks once before it goes by what it hears."""
    monkeypatch.setattr(flow_line, "LOOK_EVERY", LONG.total_seconds())
    started = time.monotonic()
    line = {"prefix": fresh(), "monotonic": lambda: time.monotonic() - started}
    here, there = (make_breakers(redis_url, TOUCHY, **line) for _ in range(2))
    call(there, "crm", "+")
    wait_until(lambda: there.line._version is not None, "it listens")
    call(here, "crm", "---")
    wait_until(lambda: isinstance(there.known("crm"), Barred), "it was told")


@pytest.mark.parametrize("silently", [True, False], ids=["hushed", "cut"])
def test_an_opening_that_is_not_pushed_is_looked_for(make_breakers, proxy, redis_url, silently):
    prefix = fresh()
    here, there = make_breakers(redis_url, TOUCHY, prefix), make_breakers(proxy.url, TOUCHY, prefix)
    call(there, "crm", "+")
    wait_until(lambda: there.line._version is not None, "it listens")
    (proxy.hush if silently else proxy.forsake)()
    call(here, "crm", "---")
    wait_until(lambda: isinstance(there.known("crm"), Barred), "it looked")


# -- emptied ---------------------------------------------------------------------------------------


def emptied(store, prefix):
    store.delete(*store.scan_iter(f"{{{prefix}:flow}}:*"))


@pytest.fixture
def store(redis_url):
    with redis.Redis.from_url(redis_url) as store:
        yield store


def opened(breakers):
    call(breakers, "crm", "-")
    assert refused(breakers, "crm")


def isolated(breakers):
    call(breakers, "crm", "+")
    breakers.isolate("crm", by="ann")
    assert refused(breakers, "crm")


def half_open(breakers):
    opened(breakers)
    let_pass(SHORT)
    assert isinstance(breakers.admit("crm", "the only probe"), Permit)
    assert refused(breakers, "crm")


def closed_again(breakers):
    isolated(breakers)
    breakers.reset("crm", by="ann")
    assert not refused(breakers, "crm")


@pytest.mark.parametrize("before", [opened, isolated, half_open, closed_again])
def test_an_emptied_store_closes_its_breakers_which_count_from_there(
    make_breakers, redis_url, store, before
):
    prefix = fresh()
    here, there = (make_breakers(redis_url, QUICK, prefix) for _ in range(2))
    before(here)
    refused(there, "crm")
    emptied(store, prefix)
    for breakers in (here, there):
        anew = Permit("crm", 0)
        wait_until(lambda one=breakers, new=anew: one.admit("crm", fresh()) == new, "it is closed")
    call(there, "crm", "-")
    wait_until(lambda: refused(here, "crm"), "it is open again")
    assert phase(here, "crm") is Phase.OPEN


def test_a_probe_of_before_says_nothing_to_an_emptied_store(make_breakers, redis_url, store):
    prefix = fresh()
    breakers = make_breakers(redis_url, QUICK, prefix)
    opened(breakers)
    let_pass(SHORT)
    probe = breakers.admit("crm", "probe")
    emptied(store, prefix)
    breakers.record(probe, ok=False, took=AT_ONCE)
    breakers.forgo(probe)
    assert breakers.admit("crm", fresh()) == Permit("crm", 0)


def test_a_store_that_was_started_anew_is_used_at_once(make_redis, make_breakers):
    server = make_redis()
    breakers = make_breakers(server.url, QUICK)
    isolated(breakers)
    server.restart()
    wait_until(lambda: breakers.phases() == {"crm": Phase.CLOSED}, "it is closed")
    opened(breakers)
    assert phase(breakers, "crm") is Phase.OPEN


def test_an_answer_that_was_overtaken_changes_nothing(make_breakers, redis_url):
    breakers = make_breakers(redis_url, QUICK)
    call(breakers, "crm", "+")
    before, asked_at = breakers._seen.state("crm"), time.monotonic()
    opened(breakers)
    breakers._seen.take_in("crm", before, asked_at)
    assert breakers.phases()["crm"] is Phase.OPEN


# -- what lies there -------------------------------------------------------------------------------


@pytest.mark.parametrize("found", ["", "no JSON", "5", "{}", "[]", '{"phase": "melted"}'])
def test_a_state_that_cannot_be_read_is_begun_anew(make_breakers, redis_url, store, found):
    breakers = make_breakers(redis_url, TOUCHY, prefix := fresh())
    store.set(f"{{{prefix}:flow}}:breaker:crm", found)
    call(breakers, "mail", "-")
    call(breakers, "crm", "---")
    assert phase(breakers, "crm") is Phase.OPEN
    assert in_a_row(breakers, "mail") == 1
    assert not breakers.line.away


def test_a_key_of_another_kind_is_replaced(make_breakers, redis_url, store):
    breakers = make_breakers(redis_url, TOUCHY, prefix := fresh())
    store.hset(f"{{{prefix}:flow}}:breaker:crm", "a", "b")
    call(breakers, "crm", "---")
    assert refused(breakers, "crm")
    assert phase(breakers, "crm") is Phase.OPEN


def test_who_may_not_publish_still_opens_and_tells_of_it(make_redis, make_breakers):
    server = make_redis(users=["user jo on >secret ~* +@all"])
    url = server.url_for(user="jo", password="secret")
    here, there = (make_breakers(url, TOUCHY, "acl") for _ in range(2))
    call(there, "crm", "+")
    call(here, "crm", "---")
    wait_until(lambda: here._watch.changes, "it opened")  # its thread may have told the last call
    assert [change.after for change in here._watch.changes] == [Phase.OPEN]
    assert [change.after for change in there.history(9)] == [Phase.OPEN]
    wait_until(lambda: refused(there, "crm"), "it looked")


# -- processes -------------------------------------------------------------------------------------


def test_a_fork_has_a_line_of_its_own(redis_url):
    prefix = fresh()

    def make():
        line = FlowLine(redis_url, prefix=prefix)
        return line, RedisBreakers(line, default=TOUCHY)

    once = OncePerProcess(make)
    line, breakers = once.get()
    call(breakers, "crm", "++")
    wait_until(lambda: line._version is not None, "it listens")

    def child():
        own_line, own = once.get()
        assert own_line is not line

        def opens():  # a busy server may answer too late, and then nothing is counted
            return refused(own, "crm") or call(own, "crm", "-")

        wait_until(opens, "it opens")
        own_line.close()

    fork = multiprocessing.get_context("fork").Process(target=child)
    fork.start()
    fork.join(60)
    assert fork.exitcode == 0
    wait_until(lambda: refused(breakers, "crm"), "the parent heard of it by its own line")
    line.close()


def test_close_tells_the_last_batch_and_ends_the_thread(make_breakers, redis_url):
    prefix = fresh()
    breakers = make_breakers(redis_url, TOUCHY, prefix)
    call(breakers, "crm", "+")
    thread = breakers.line._thread
    call(breakers, "crm", "+" * 10)
    breakers.line.close()
    assert not thread.is_alive()
    seen = make_breakers(redis_url, TOUCHY, prefix).states()["crm"]
    assert sum(tally.calls for tally in seen.tallies) == 11
