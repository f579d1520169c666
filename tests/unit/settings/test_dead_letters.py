"""Targets of dead letters: a chain that cannot keep its promise is refused with the cure."""

from __future__ import annotations

import pytest

from angzarr.dead_letters.bounds import LETTER
from angzarr.errors import ConfigurationError
from angzarr.settings.settings import load

SPOOL = {"path": "/var/lib/angzarr/spool", "durable": True}


def settings(**dlq):
    return load({"dlq": dlq}).dlq


def test_a_chain_is_read_in_its_order():
    given = settings(targets=["amqp", "kafka", "spool"], kafka_brokers="h:9092", spool=SPOOL)
    assert given.targets == ("amqp", "kafka", "spool")
    assert given.backend is None
    assert given.spool.max_bytes == 2**30


def test_a_chain_may_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("ANGZARR_DLQ__TARGETS", '["amqp", "spool"]')
    monkeypatch.setenv("ANGZARR_DLQ__SPOOL__PATH", "/spool")
    monkeypatch.setenv("ANGZARR_DLQ__SPOOL__DURABLE", "true")
    given = load({}).dlq
    assert (given.targets, given.spool.path) == (("amqp", "spool"), "/spool")


@pytest.mark.parametrize(
    ("dlq", "said"),
    [
        ({"backend": "amqp", "targets": ["amqp"]}, "two ways to say one thing: keep one"),
        ({"targets": []}, "targets must name a queue"),
        ({"targets": ["spool"], "spool": SPOOL}, "targets must name a queue"),
        ({"targets": ["amqp", "amqp"]}, "targets name 'amqp' twice"),
        ({"targets": ["spool", "amqp"], "spool": SPOOL}, "'spool' must be the last of targets"),
        ({"targets": ["kafka", "amqp"]}, "target 'kafka' needs kafka_brokers"),
        ({"backend": "kafka"}, "backend 'kafka' needs kafka_brokers"),
        ({"targets": ["channel"]}, "dlq.targets.0"),
        ({"targets": ["none", "amqp"], "accept_loss": True}, "dlq.targets.0"),
        ({"targets": ["amqp", "spool"]}, "needs spool.path"),
        ({"targets": ["amqp", "spool"], "spool": {"path": "/s"}}, "outlives the container"),
        ({"targets": ["amqp", "spool"], "spool": {"path": "s", "durable": True}}, "at the root"),
        ({"targets": ["amqp"], "spool": SPOOL}, "targets do not end with 'spool'"),
        ({"backend": "amqp", "spool": SPOOL}, "targets do not end with 'spool'"),
        ({"targets": ["amqp", "spool"], "spool": SPOOL | {"max_bytes": 0}}, "max_bytes"),
    ],
)
def test_a_chain_that_cannot_work_is_refused(dlq, said):
    with pytest.raises(ConfigurationError, match=said):
        settings(**dlq)


def test_why_a_spool_must_be_durable_is_said_with_both_cures():
    with pytest.raises(ConfigurationError) as caught:
        settings(targets=["amqp", "spool"], spool={"path": "/srv/spool"})
    assert "durable: true if /srv/spool is on a volume" in str(caught.value)
    assert "leave 'spool' out of targets: messages are then held" in str(caught.value)


@pytest.mark.parametrize("low", [{"most_values": 199_999}, {"most_levels": 199}])
def test_no_less_is_read_of_a_letter_than_workers_write(low):
    with pytest.raises(ConfigurationError, match="greater than or equal to"):
        settings(**low)


def test_the_bounds_of_letters_are_as_set():
    assert settings().bounds == LETTER
    assert settings(most_values=300_000, most_levels=300).bounds == (300_000, 300)
