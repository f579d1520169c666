"""An act off the ledger is said to begin before it is done, and its end names that it began."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.hand_clock import HandClock

from angzarr.adapters.memory.fact_reader import MemoryFactReader
from angzarr.adapters.memory.facts import MemoryFactLog
from angzarr.errors import ConfigurationUnfit
from angzarr.facts.act import ActKind, ActOrigin, acting_from, end_of_act
from angzarr.facts.act_log import LATE, LOOKED_BACK, ActLog, unended_acts

PUT = ActKind.CONFIGURATION_PUT


class World:
    def __init__(self, log=None):
        self.log, self.clock = log or MemoryFactLog(), HandClock()
        self.acts = ActLog(facts=lambda: self.log, clock=self.clock)

    def recording(self, **told):
        return self.acts.recording(PUT, "pricing", by="ann", reason="spring", **told)

    @property
    def facts(self):
        return self.log.read()


@pytest.fixture
def world():
    return World()


def test_it_is_said_before_the_block_and_ended_behind_it(world):
    with acting_from(ActOrigin.CLI), world.recording(config_id="pricing") as act:
        (begun,) = world.facts
        world.clock.sleep(timedelta(seconds=5))
        act.done({"version": "2"}, config_version="2")
    _, end = world.facts
    assert (begun.type, begun.subtype) == ("lifecycle", "act_begun")
    assert begun.data == {
        "by": "ann", "origin": "cli", "reason": "spring", "act": "configuration_put",
        "subject": "pricing",
    }  # fmt: skip
    assert (end.subtype, end.resolves, end.config_version) == ("configuration_put", begun.id, "2")
    assert (begun.config_id, end.config_id) == ("pricing", "pricing")
    assert end.at - begun.at == timedelta(seconds=5)
    assert end.data["version"] == "2"


def test_what_raises_ended_as_failed_and_raises_on(world):
    with pytest.raises(KeyboardInterrupt), world.recording():
        raise KeyboardInterrupt
    world.clock.sleep(timedelta(seconds=1))
    with pytest.raises(LookupError, match="hunter2"), world.recording():
        raise LookupError("password=hunter2")
    world.clock.sleep(timedelta(seconds=1))
    with pytest.raises(ConfigurationUnfit), world.recording():
        raise ConfigurationUnfit("no\x1brate\n and no fee")
    begun, interrupted, _, failed, _, unfit = world.facts
    assert (interrupted.subtype, interrupted.resolves) == ("act_failed", begun.id)
    assert interrupted.data["error"] == "KeyboardInterrupt"
    assert failed.data["error"] == "LookupError", "it may repeat any value"
    assert unfit.data["error"] == "ConfigurationUnfit: no\ufffdrate and no fee"
    assert failed.data["act"] == "configuration_put"


def test_what_was_done_stays_done_whatever_is_raised_then(world):
    def done_and_away():
        with world.recording() as act:
            act.done({})
            raise SystemExit(1)

    with pytest.raises(SystemExit):
        done_and_away()
    assert [fact.subtype for fact in world.facts] == ["act_begun", "configuration_put"]


def test_what_did_nothing_says_so(world):
    with world.recording():
        pass
    begun, end = world.facts
    assert (end.subtype, end.resolves) == ("act_changed_nothing", begun.id)


def test_a_fact_of_another_room_ends_the_act_that_is_under_way(world):
    assert end_of_act(PUT) is None
    with world.recording():
        (begun,) = world.facts
        assert end_of_act(ActKind.BREAKER_CHANGED) is None, "that happened by the way"
        assert end_of_act(PUT) == begun.id
    assert end_of_act(PUT) is None
    assert world.facts == [begun]


class Away(MemoryFactLog):
    """Takes facts and never writes them; *error*: it is broken, too."""

    def __init__(self, error=None):
        super().__init__()
        self.error, self.asked = error, []

    def flush(self, within, /):
        self.asked.append(within)
        if self.error is not None:
            raise self.error
        return False


@pytest.mark.parametrize("error", [None, OSError("the disk is full")])
def test_a_place_of_facts_that_is_away_stops_no_act_and_costs_one_sentence(error, caplog):
    world = World(Away(error))
    with world.recording() as act:
        act.done({})
    (line,) = caplog.records
    assert line.getMessage().startswith("act_not_announced: configuration_put of pricing goes on")
    assert world.log.asked == [timedelta(seconds=3)]
    assert [fact.subtype for fact in world.facts] == ["act_begun", "configuration_put"]


def test_an_act_that_is_interrupted_while_it_waits_has_failed():
    world = World(Away(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt), world.recording():
        raise AssertionError("it was done")
    assert [fact.subtype for fact in world.facts] == ["act_begun", "act_failed"]


def test_a_log_that_cannot_be_opened_stops_no_act(caplog):
    def broken():
        raise OSError("no driver")

    with ActLog(facts=broken, clock=HandClock()).recording(PUT, "pricing", by="ann") as act:
        act.done({})
    assert "fact_not_appended: of this act no fact tells: configuration_put:pricing:" in caplog.text
    assert " by ann" in caplog.text


def test_an_act_without_an_end_is_told_from_an_hour_on_and_for_a_week(world):
    def told():
        found = unended_acts(MemoryFactReader(world.log), world.clock.now())
        return [fact.data["subject"] for fact in found]

    class Killed(MemoryFactLog):
        def append(self, facts, /, *, before_ack=False):
            if facts[0].subtype == "act_begun":
                world.log.append(facts)

    with world.recording() as act:
        act.done({})
    with ActLog(facts=Killed, clock=world.clock).recording(PUT, "fees", by="ann"):
        """It is killed here."""
    assert told() == []
    world.clock.sleep(LATE - timedelta(seconds=1))
    assert told() == []
    world.clock.sleep(timedelta(seconds=2))
    assert told() == ["fees"]
    world.clock.sleep(LOOKED_BACK)
    assert told() == []
