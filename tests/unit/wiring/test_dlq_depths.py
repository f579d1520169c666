"""From settings to gauges of the queues that letters go to."""

from __future__ import annotations

import pytest

from angzarr.settings.settings import load
from angzarr.wiring import dead_letters as letter_wiring
from angzarr.wiring import dlq_depths as depth_wiring
from angzarr.wiring import stores as wiring
from contracts.dead_letters import letters_of


class Ours:
    """Every duty is this process's."""

    def __init__(self, name):
        self.name = name

    def is_ours(self):
        return True

    def end(self):
        pass


class Heard:
    """Stands in for the gauges."""

    def observe(self, depths, now, *, reads):
        self.depths, self.reads = depths, reads


@pytest.fixture
def heard(monkeypatch):
    made = Heard()
    monkeypatch.setattr(wiring, "depth_meters", lambda: made)
    return made


def test_without_a_health_port_no_queue_is_asked(heard):
    for duty_of in (None, Ours):
        assert depth_wiring.open_depth_thread(load({}), "memory://", ["o"], duty_of) is None
    assert not vars(heard)


@pytest.mark.parametrize("duty_of", [None, Ours])
def test_a_worker_and_an_analysis_worker_tell_what_waits_unread(heard, duty_of, unique_name):
    settings, broker = load({"health": {"port": 8081}}), f"memory://{unique_name}"
    letter_wiring.open_dead_letters(settings, broker).put(letters_of("order", 3))
    thread = depth_wiring.open_depth_thread(settings, broker, ["order", "mail"], duty_of)
    thread.turn()
    assert {name: depth.waiting for name, depth in heard.depths().items()} == {
        "order": 3, "mail": 0
    }  # fmt: skip
    assert heard.reads is (duty_of is None)
    thread.end()


def test_apps_of_one_store_that_ask_for_something_else_have_duties_of_their_own(heard):
    settings, names = load({"health": {"port": 8081}}), []

    def duty_of(name):
        names.append(name)
        return Ours(name)

    for domains in (["order", "mail"], ["mail", "order"], ["order"]):
        depth_wiring.open_depth_thread(settings, "memory://", domains, duty_of).end()
    assert names[0] == names[1] != names[2]


def test_all_targets_are_asked_but_the_spool_which_has_gauges_of_its_own(monkeypatch, tmp_path):
    targets = ["kafka", "sqs", "spool"]
    settings = load({
        "dlq": {
            "targets": targets, "kafka_brokers": "127.0.0.1:1",
            "spool": {"path": str(tmp_path), "durable": True},
        },
        "saga_compensation": {"dead_letter_queue_url": "sqs://eu-west-1"},
    })  # fmt: skip
    places = depth_wiring._places(settings, "redis://127.0.0.1:1")
    assert set(places) == {"kafka", "sqs", "saga_compensation"}


def test_a_queue_that_is_away_is_one_line_and_ends_nothing(heard, caplog, monkeypatch):
    def away(_given, _broker):
        raise OSError("no route\x1b[2J")

    monkeypatch.setattr(letter_wiring, "_BACKENDS", {"channel": away})
    settings = load({"health": {"port": 8081}})
    thread = depth_wiring.open_depth_thread(settings, "memory://", ["order"], Ours)
    for _ in range(3):
        thread.turn()
    thread.end()
    (line,) = [one.getMessage() for one in caplog.records]
    assert line.startswith("dead_letters_not_counted on channel: no route")
    assert line.isprintable()
    assert heard.depths() == {}
