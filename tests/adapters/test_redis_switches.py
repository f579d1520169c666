"""Switches on a real Redis: pushed, found without a push, kept while it is away."""

from __future__ import annotations

import json
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial

import pytest
import redis
from tests.contracts.switches import (
    DROP,
    HANDLER,
    HOUR,
    MOST,
    PAUSE,
    SYNC,
    TENANT,
    SwitchesContract,
    Watch,
    wait_until,
)

from angzarr.adapters.redis import flow_line
from angzarr.adapters.redis.flow_line import FlowLine
from angzarr.adapters.redis.switches import RedisSwitches
from angzarr.errors import StoreUnavailable
from angzarr.resilience.switches import REMEMBERED, Selector


@pytest.fixture
def make(redis_url, unique_name):
    lines = []

    def make(watch=None, url=redis_url, **options):
        lines.append(FlowLine(url, prefix=unique_name))
        return RedisSwitches(lines[-1], watch, **options)

    yield make
    for line in lines:
        line.close()


@pytest.fixture
def direct(redis_url):
    with redis.Redis.from_url(redis_url, decode_responses=True) as direct:
        yield direct


class TestRedisSwitches(SwitchesContract):
    @pytest.fixture
    def make(self, make):
        return partial(make, most=MOST)

    @pytest.fixture
    def let_pass(self):
        return lambda span: time.sleep(span.total_seconds() + 0.005)


@pytest.fixture
def mine(make):
    return make()


@pytest.fixture
def theirs(make):
    made = make()
    assert not made.any()
    return made


def test_a_change_is_pushed(mine, theirs, monkeypatch):
    wait_until(lambda: theirs._line._version is not None)
    monkeypatch.setattr(flow_line, "LOOK_EVERY", 3600.0)
    mine.put(HANDLER, PAUSE, by="ada")
    wait_until(lambda: theirs.of(SYNC))


def test_who_only_changes_switches_honours_none(make):
    watch = Watch()
    person = make(watch)
    person.put(HANDLER, PAUSE, by="ada")
    assert (len(watch.changes), watch.heard_of) == (1, [])


def test_a_change_whose_push_was_lost_is_found_by_the_look(
    mine, theirs, direct, unique_name, monkeypatch
):
    wait_until(lambda: direct.pubsub_numsub(f"{unique_name}:flow")[0][1])
    monkeypatch.setattr(mine._line, "channel", "nobody listens here")
    mine.put(HANDLER, PAUSE, by="ada")
    wait_until(lambda: theirs.of(SYNC))


def test_all_keys_share_one_hash_tag_and_none_ends_by_itself(mine, direct, unique_name):
    mine.put(HANDLER, PAUSE, by="ada", until=HOUR)
    keys = set(direct.scan_iter(f"*{unique_name}*"))
    base = f"{{{unique_name}:flow}}"
    assert keys == {f"{base}:{part}" for part in ("switches", "version", "switches:history")}
    assert {direct.ttl(key) for key in keys} == {-1}


def test_a_store_that_forgets_everything_has_no_switches(mine, theirs, direct, unique_name):
    mine.put(HANDLER, PAUSE, by="ada")
    wait_until(lambda: theirs.of(SYNC))
    for key in direct.scan_iter(f"*{unique_name}*"):
        direct.delete(key)
    wait_until(lambda: theirs.of(SYNC) is None)
    assert list(mine.switches()) == []


def test_the_history_is_bounded(mine, direct, unique_name):
    key = f"{{{unique_name}:flow}}:switches:history"
    with direct.pipeline(transaction=False) as pipe:
        for _ in range(REMEMBERED + 500):
            pipe.xadd(key, {"before": "", "after": "", "said": ""})
        pipe.execute()
    mine.put(HANDLER, PAUSE, by="ada")
    assert REMEMBERED <= direct.xlen(key) < REMEMBERED + 500


def test_times_are_those_of_redis(mine, monkeypatch):
    monkeypatch.setattr(mine._line, "_ahead", 7200.0)
    put = mine.put(HANDLER, PAUSE, by="ada", until=timedelta(minutes=1))
    assert abs(put.at.timestamp() - time.time()) < 60
    assert put.until - put.at == timedelta(minutes=1)


def test_many_who_change_at_once_lose_no_change(make, theirs):
    def change(n):
        made = make()
        for m in range(10):
            made.put(Selector(tenant=f"{n}-{m}"), DROP, by="ada", reason="test")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(change, range(8)))
    assert len(make().switches()) == 80
    subjects = [SYNC._replace(tenant=f"{n}-{m}") for n in range(8) for m in range(10)]
    wait_until(lambda: all(theirs.of(subject) for subject in subjects))


# -- faults ------------------------------------------------------------------------------------


@pytest.fixture
def through(proxy):
    return proxy.url


@pytest.mark.parametrize("how", ["cut", "stall"])
def test_what_is_known_goes_on_to_hold_while_the_store_is_away(make, mine, proxy, through, how):
    mine.put(HANDLER, PAUSE, by="ada")
    mine.put(TENANT, DROP, by="ada", reason="left us", until=timedelta(seconds=1))
    worker, person = make(url=through), make(url=through)
    assert worker.any()
    getattr(proxy, how)()
    wait_until(lambda: worker._line.away)
    assert worker.any()
    assert worker.of(SYNC).action is PAUSE
    only_tenant = SYNC._replace(handler="shop.bill")
    wait_until(lambda: worker.of(only_tenant) is None)
    with pytest.raises(StoreUnavailable):
        person.resume([HANDLER.id], by="ada")
    assert worker.of(SYNC).action is PAUSE
    mine.resume([HANDLER.id], by="ada")
    proxy.mend()
    wait_until(lambda: worker.of(SYNC) is None)


def test_a_process_that_begins_while_the_store_is_away_lets_go_on_until_it_is_there(
    make, mine, proxy, through, caplog
):
    mine.put(HANDLER, PAUSE, by="ada")
    proxy.cut()
    worker = make(url=through)
    with caplog.at_level(logging.WARNING, "angzarr.flow"):
        assert not worker.any()
    assert worker.of(SYNC) is None
    assert "flow_store_away" in caplog.text
    proxy.mend()
    wait_until(lambda: worker.of(SYNC))


def test_a_change_whose_reply_was_lost_is_made_and_told_once(make, mine, proxy, through):
    watch = Watch()
    person = make(watch, url=through)
    person.put(TENANT, PAUSE, by="ada")
    proxy.lose_replies(b"put")
    put = person.put(HANDLER, PAUSE, by="ada", until=HOUR)
    assert put in person.switches()
    proxy.lose_replies(b"resume")
    assert {one.id for one in person.resume([TENANT.id, HANDLER.id], by="bob")} == {
        TENANT.id, HANDLER.id,
    }  # fmt: skip
    assert [change.word for change in watch.changes] == ["pause", "pause", "resume", "resume"]
    assert list(mine.history(10)) == watch.changes
    assert not mine.switches()
    assert list(person.resume([HANDLER.id], by="bob")) == []


def test_what_was_resumed_meanwhile_is_not_put_again_by_a_step_sent_again(
    mine, direct, unique_name, monkeypatch
):
    step, sent = mine._step, []
    monkeypatch.setattr(mine, "_step", lambda *what: sent.append(what) or step(*what))
    put = mine.put(HANDLER, PAUSE, by="ada")
    mine.resume([put.id], by="bob")
    (change,) = step(*sent[0]).changes
    assert (change.before, change.after) == (None, put)
    assert list(mine.switches()) == []
    assert direct.xlen(f"{{{unique_name}:flow}}:switches:history") == 2


# -- what cannot be read -----------------------------------------------------------------------


def entry(action="pause", at="1000", ends="0", **said):
    given = {"selector": {}, "action": action, "by": "ada", "reason": "", **said}
    return f"{at} {ends} {json.dumps(given)}"


GARBAGE = {
    "of another form": "garbage",
    "empty": "",
    "no UTF-8": b"1000 0 \xff\xfe",
    "no JSON": "1000 0 {",
    "too deep": "1000 0 " + "[" * 5000,
    "no object": "1000 0 null",
    "no selector": '1000 0 {"action": "pause", "by": "ada", "reason": ""}',
    "no name": entry(selector={"tenant": 7}),
    "nobody": entry(by=None),
    "no time": entry(at="9" * 30),
    "no end": entry(ends="9" * 5000),
    "huge": "1000 0 " + "x" * 1_000_000,
    "another selector's": entry(),
    "a part of a newer release": entry(selector={"region": "eu"}),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=list(GARBAGE))
def test_one_entry_that_cannot_be_read_keeps_no_other_from_holding(
    make, mine, direct, unique_name, caplog, garbage
):
    key = f"{{{unique_name}:flow}}:switches"
    put = mine.put(HANDLER, PAUSE, by="ada")
    direct.hset(key, "0123456789ab", garbage)
    watch = Watch()
    worker = make(watch)
    assert worker.any()
    assert worker.of(SYNC) == put
    assert worker.of(Selector("other", "other", "other", "other")) is None
    drop = mine.put(TENANT, DROP, by="ada", reason="left us")
    wait_until(lambda: worker.of(SYNC._replace(handler="shop.bill")) == drop)
    (line,) = [one.message for one in caplog.records if "unreadable" in one.message]
    assert line.endswith("see `angzarr flow list`: 0123456789ab")
    assert mine.switches() == [put, drop]
    assert mine.unreadable() == ["0123456789ab"]
    assert list(worker.resume([put.id, "0123456789ab"], by="bob")) == [put]
    assert [change.switch_id for change in watch.changes] == [put.id, "0123456789ab"]
    assert watch.changes[1].selector is None
    assert list(mine.history(10))[-2:] == watch.changes
    assert (mine.switches(), mine.unreadable()) == ([drop], [])


@pytest.mark.parametrize("odd", [b"\xff\xfe", b"", b"a\nb\x1b[31m", b"\x00", b"long" * 10_000])
def test_whatever_an_entry_is_called_it_is_listed_and_removed(mine, direct, unique_name, odd):
    direct.hset(f"{{{unique_name}:flow}}:switches", odd, b"\xff")
    put = mine.put(HANDLER, PAUSE, by="ada")
    (id_,) = mine.unreadable()
    assert id_.isascii()
    assert id_.isprintable()
    assert mine.switches() == [put]
    mine.resume([id_], by="ada")
    assert mine.unreadable() == []
    assert [change.switch_id for change in mine.history(10)] == [put.id, id_]


@pytest.mark.parametrize(
    "said",
    [
        entry("throttle", selector=HANDLER.named),
        entry({"share": 0.1}, selector=HANDLER.named),
        entry("drop", selector=HANDLER.named, share=0.1),
        entry("drop", selector=HANDLER.named, share=0.1).replace('"action": "drop", ', ""),
    ],
    ids=["action", "kind of action", "more of an action", "no action"],
)
def test_what_a_newer_release_does_is_a_pause_here(make, mine, direct, unique_name, said):
    direct.hset(f"{{{unique_name}:flow}}:switches", HANDLER.id, said)
    worker = make()
    assert worker.any()
    held = worker.of(SYNC)
    assert (held.action, held.understood, held.by) == (PAUSE, False, "ada")
    assert "to be safe" in str(held)
    assert mine.unreadable() == []
    assert list(mine.resume([HANDLER.id], by="bob")) == [held]
    wait_until(lambda: not worker.any())


def test_a_part_that_a_newer_release_leaves_open_changes_nothing(make, direct, unique_name):
    said = entry("drop", selector={**HANDLER.named, "tenant": None, "region": None})
    direct.hset(f"{{{unique_name}:flow}}:switches", HANDLER.id, said)
    worker = make()
    assert worker.any()
    assert (worker.of(SYNC).action, worker.of(SYNC).understood) == (DROP, True)


def test_a_history_entry_that_is_none_of_ours_is_left_out(mine, direct, unique_name):
    direct.xadd(f"{{{unique_name}:flow}}:switches:history", {"odd": "entry"})
    mine.put(HANDLER, PAUSE, by="ada")
    direct.xadd(
        f"{{{unique_name}:flow}}:switches:history",
        {"switch": TENANT.id, "before": "", "after": "newer", "said": '{"by": "a", "reason": ""}'},
    )
    assert [change.word for change in mine.history(10)] == ["pause"]


def test_a_first_look_that_failed_is_not_repeated_by_each_delivery(make, mine, monkeypatch):
    mine.put(HANDLER, PAUSE, by="ada")
    worker = make()
    here, asked, mended = threading.current_thread(), [], threading.Event()
    step = worker._step

    def failing(*what):
        if threading.current_thread() is here:
            asked.append(what)
        if not mended.is_set():
            raise ValueError("odd")
        return step(*what)

    monkeypatch.setattr(worker, "_step", failing)
    for _ in range(100):
        assert not worker.any()
        assert worker.of(SYNC) is None
    assert len(asked) == 1
    mended.set()
    wait_until(lambda: worker.of(SYNC))
    assert len(asked) == 1


def test_nobody_waits_twice_for_a_store_that_is_away(make, through, proxy):
    proxy.cut()
    worker = make(url=through)
    asked = []
    step = worker._step
    worker._step = lambda *what: asked.append(what) or step(*what)
    with ThreadPoolExecutor(8) as pool:
        assert not any(pool.map(lambda _: worker.any(), range(200)))
    assert len(asked) <= 2
