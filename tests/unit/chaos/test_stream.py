"""The stream, the garbage and the plan of faults: pure, and the same for the same seed."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest

from chaos import faults
from chaos.fates import FATES, fates_for
from chaos.garbage import KINDS, raw
from chaos.stream import stream


def events(seed, number, broker="redis", rate=12.0):
    return list(islice(stream(seed, rate, fates_for(broker)), number))


@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_the_same_seed_gives_the_same_events_and_the_same_faults(broker):
    assert events(1, 200, broker) == events(1, 200, broker)
    assert events(1, 200, broker) != events(2, 200, broker)
    assert faults.plan(1, 60, broker) == faults.plan(1, 60, broker)
    assert faults.plan(1, 60, broker) != faults.plan(2, 60, broker)


def test_a_run_that_takes_fewer_events_takes_the_first_of_the_same():
    assert events(1, 80) == events(1, 200)[:80]


def test_every_fate_comes_even_in_a_short_stream():
    assert {event.fate.name for event in events(1, len(FATES))} == set(FATES)


def test_events_come_at_the_rate_that_was_asked_for():
    gaps = [event.gap for event in events(1, 1000, rate=20.0)]
    assert min(gaps) >= 0
    assert 0.045 < sum(gaps) / len(gaps) < 0.055


def test_ids_are_unique_and_name_their_fate():
    some = events(3, 500)
    assert len({event.id for event in some}) == 500
    assert all(event.id.startswith(event.fate.name) for event in some)


def test_damaged_envelopes_are_for_redis_alone():
    assert "damaged" not in {fate.name for fate in fates_for("rabbitmq")}


def test_only_some_fates_can_be_had():
    assert [fate.name for fate in fates_for("redis", frozenset({"ok", "bug"}))] == ["ok", "bug"]


# -- garbage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_garbage_carries_its_id_so_that_its_letter_can_be_told(kind):
    message = raw(kind, "garbage-77")
    known = message.headers.get("id") == "garbage-77" or b"garbage-77" in message.body
    assert known


def test_two_pieces_of_garbage_of_one_kind_differ():
    for kind in [*KINDS, "damaged"]:
        assert raw(kind, "garbage-1") != raw(kind, "garbage-2")


# -- faults ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_faults_of_a_lane_do_not_overlap_and_are_over_in_time(broker):
    plan = faults.plan(5, 60, broker)
    for lane in ("fleet", "servers"):
        mine = [fault for fault in plan if fault.lane == lane]
        ends = [fault.at + fault.seconds for fault in mine]
        assert all(end <= 60 for end in ends)
        assert all(a < fault.at for a, fault in zip(ends, mine[1:], strict=False))


def test_rabbitmq_is_back_before_the_end_and_the_other_lane_goes_on():
    plan = faults.plan(1, 60, "rabbitmq")
    away = [one for one in plan if one.kind in {"restart broker", "cut broker"}]
    assert max(one.at + one.seconds for one in away) <= 60 - faults.AFTERMATH
    others = [one for one in plan if one.lane == "fleet"]
    assert max(one.at + one.seconds for one in others) > 60 - faults.AFTERMATH / 2


@pytest.mark.parametrize("broker", ["redis", "rabbitmq", "sqs"])
def test_three_quarters_of_a_minute_have_every_short_kind_of_fault(broker):
    plan = Counter(fault.kind for fault in faults.plan(1, 45, broker))
    short = {
        name for name, kind in faults.KINDS.items() if broker in kind.brokers and not kind.long
    }
    assert set(plan) == short


def test_long_outages_come_in_long_runs_alone():
    long = {name for name, kind in faults.KINDS.items() if kind.long}
    assert not long & {fault.kind for fault in faults.plan(1, 300, "rabbitmq")}
    assert long & {fault.kind for fault in faults.plan(1, 300, "rabbitmq", long=True)}


def test_only_some_kinds_can_be_had():
    plan = faults.plan(1, 30, "redis", ["kill worker"])
    assert {fault.kind for fault in plan} == {"kill worker"}
    assert [fault.number for fault in plan] == list(range(1, len(plan) + 1))
