"""From settings to a chain with a spool behind it, and back out of the spool."""

from __future__ import annotations

from pathlib import Path

import pytest

from angzarr.adapters.memory.dead_letters import DiscardedDeadLetterQueue, MemoryDeadLetterQueue
from angzarr.adapters.opentelemetry.letter_meters import LetterMeters
from angzarr.errors import ConfigurationError
from angzarr.settings.settings import load
from angzarr.wiring import dead_letters as letter_wiring
from angzarr.wiring import spool as spool_wiring
from angzarr.wiring import startup_checks as checks
from contracts.dead_letters import a_letter, letters_of
from polling import wait_until
from unit.dead_letters.letterboxes import Target

BROKER = "amqp://127.0.0.1:1"


@pytest.fixture
def kafka(monkeypatch):
    """Stand in for Kafka in the mapping of backends."""
    target = Target("kafka")
    backends = {**letter_wiring._BACKENDS, "kafka": lambda _given, _broker: target}
    monkeypatch.setattr(letter_wiring, "_BACKENDS", backends)
    return target


@pytest.fixture
def settings(tmp_path):
    path = str(tmp_path / "spool")
    return load({
        "dlq": {
            "targets": ["kafka", "spool"],
            "kafka_brokers": "127.0.0.1:1",
            "spool": {"path": path, "durable": True},
        }
    })  # fmt: skip


@pytest.fixture
def prepared(settings, make_app):
    checks._check_spool(settings)
    return settings


def test_letters_go_to_the_spool_while_the_queue_is_away_and_are_forwarded(kafka, prepared):
    chain = letter_wiring.open_dead_letters(prepared, BROKER)
    kafka.leave()
    assert chain.put(letters_of("order", 3)) == [None] * 3
    kafka.come_back()
    forwarder = spool_wiring.open_forwarder(prepared, BROKER)
    assert forwarder.batch().forwarded == 3
    assert kafka.taken == [f"order-{n}" for n in range(3)]
    assert forwarder.batch().empty


def test_a_thread_forwards_what_an_earlier_process_left(kafka, prepared):
    kafka.leave()
    letter_wiring.open_dead_letters(prepared, BROKER).put([a_letter("order")])
    kafka.come_back()
    thread = spool_wiring.open_forwarder_thread(prepared, BROKER)
    thread.start()
    try:
        wait_until(lambda: kafka.taken == ["order-0"], "it is forwarded")
    finally:
        thread.end()
    assert kafka.closed


def test_a_worker_starts_a_forwarder_and_ends_it(make_app, monkeypatch, tmp_path):
    target = Target("amqp")
    backends = {**letter_wiring._BACKENDS, "amqp": lambda _given, _broker: target}
    monkeypatch.setattr(letter_wiring, "_BACKENDS", backends)
    spool = {"path": str(tmp_path), "durable": True}
    app = make_app(dlq={"targets": ["amqp", "spool"], "spool": spool})
    target.leave()
    app.ops.open_dead_letter_queue().put([a_letter("order")])
    target.come_back()
    app._runtime.begin_work()
    try:
        wait_until(lambda: target.taken == ["order-0"], "it is forwarded")
    finally:
        app._runtime.end_work()
    assert target.closed


def test_without_a_spool_there_is_no_thread_and_nothing_is_made(kafka, tmp_path):
    given = load({"dlq": {"targets": ["kafka"], "kafka_brokers": "h:9092"}})
    assert spool_wiring.open_forwarder_thread(given, BROKER) is None
    checks._check_spool(given)
    with pytest.raises(ConfigurationError, match="this app has no spool: its letters are held"):
        spool_wiring.spool_path(given)


def test_the_folder_of_a_worker_that_is_gone_can_be_forwarded_from_anywhere(kafka, prepared):
    kafka.leave()
    letter_wiring.open_dead_letters(prepared, BROKER).put([a_letter("order")])
    kafka.come_back()
    plain = load({"dlq": {"backend": "kafka", "kafka_brokers": "h:9092"}})
    forwarder = spool_wiring.open_forwarder(plain, BROKER, Path(prepared.dlq.spool.path))
    assert forwarder.batch().forwarded == 1


def test_who_forwards_tells_how_full_the_spool_is(kafka, prepared, monkeypatch):
    told = []
    monkeypatch.setattr(LetterMeters, "observe", lambda _self, tally, _now: told.append(tally()))
    spool_wiring.open_forwarder_thread(prepared, BROKER)
    assert told[0].letters == 0


def test_a_single_backend_is_no_chain():
    channel = load({"dlq": {"backend": "channel"}})
    none = load({"dlq": {"backend": "none", "accept_loss": True}})
    assert isinstance(letter_wiring.open_dead_letters(channel, BROKER), MemoryDeadLetterQueue)
    assert isinstance(letter_wiring.open_dead_letters(none, BROKER), DiscardedDeadLetterQueue)
    assert letter_wiring.places(load({}), BROKER) == ("amqp",)


def test_an_analysis_worker_reads_a_chain(prepared):
    checks.check_analysis(prepared, BROKER)
