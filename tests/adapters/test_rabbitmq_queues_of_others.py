"""Dead letters and the exchanges and queues of RabbitMQ that others made.

Refused is what would lose letters with a restart or its last reader, whether or not what is
missing is made; arguments under which letters go are told once, and what exists stays as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import amqp
import pytest

from angzarr.adapters.rabbitmq import queue_check
from angzarr.adapters.rabbitmq.dead_letters import RabbitMQDeadLetterQueue
from angzarr.adapters.rabbitmq.link import LetterConnection, read_cluster
from angzarr.adapters.rabbitmq.queue_check import QueueCheck
from angzarr.dead_letters.names import EXCHANGE, queue_name, routing_key
from contracts.dead_letters import a_letter, take

QUORUM = {"x-queue-type": "quorum"}
ASIDE = "what it gives up is moved to x-dead-letter-exchange=aside (leave it out)"


@pytest.fixture(scope="module")
def ours(amqp_url: str) -> Iterator[LetterConnection]:
    """A connection of the people who make queues; the exchange is there."""
    link = LetterConnection(read_cluster(amqp_url)[0], timeout=5, check=QueueCheck())
    link.channel.exchange_declare(EXCHANGE, "topic", durable=True, auto_delete=False)
    yield link
    link.close()


@pytest.fixture(params=[True, False], ids=["creating", "checking"])
def queue(request: pytest.FixtureRequest, amqp_url: str) -> Iterator[RabbitMQDeadLetterQueue]:
    queue = RabbitMQDeadLetterQueue(amqp_url, create_missing=request.param)
    yield queue
    queue.close()


@pytest.fixture
def domain(ours: LetterConnection, unique_name: str) -> Iterator[str]:
    yield unique_name
    ours.connection.channel().queue_delete(queue_name(unique_name))


def declare(link: LetterConnection, domain: str, arguments: Any = None, **changes: Any) -> None:
    """Make the queue, or see that it is so; bind it."""
    channel = link.connection.channel()
    options = {"durable": True, "auto_delete": False} | changes
    channel.queue_declare(queue_name(domain), arguments=arguments or {}, **options)
    channel.queue_bind(queue_name(domain), EXCHANGE, routing_key(domain))
    channel.close()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


@pytest.mark.parametrize(("changes", "word"), [
    ({"durable": False}, "arg 'durable'"),
    ({"auto_delete": True}, "arg 'auto_delete'"),
    ({"exclusive": True}, "exclusive access"),
])  # fmt: skip
def test_a_queue_that_would_lose_its_letters_is_refused(
    queue: RabbitMQDeadLetterQueue, ours: LetterConnection, domain: str, changes: Any, word: str
) -> None:
    declare(ours, domain, {"x-max-length": 1}, **changes)
    other = f"{domain}-other"
    declare(ours, other)
    answers = queue.put([a_letter(domain), a_letter(other), a_letter(domain, 1)])
    assert answers[1] is None, "it keeps no other back"
    for answer in (answers[0], answers[2]):
        assert str(answer).startswith(f"the queue {queue_name(domain)} is not as letters need it:")
        assert word in str(answer)
    assert ours.topology.count(domain) == 0
    ours.connection.channel().queue_delete(queue_name(domain))
    declare(ours, domain)
    assert queue.put([a_letter(domain)]) == [None], "it was looked at again"


@pytest.mark.parametrize(("changes", "word"), [
    ({"type": "fanout"}, "arg 'type'"),
    ({"durable": False}, "arg 'durable'"),
    ({"auto_delete": True}, "arg 'auto_delete'"),
    ({"arguments": {"alternate-exchange": "amq.topic"}}, "arg 'alternate-exchange'"),
])  # fmt: skip
def test_an_exchange_of_another_kind_is_refused(
    queue: RabbitMQDeadLetterQueue,
    ours: LetterConnection,
    domain: str,
    changes: Any,
    word: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("angzarr.adapters.rabbitmq.topology.EXCHANGE", domain)
    channel = ours.connection.channel()
    options = {"type": "topic", "durable": True, "auto_delete": False} | changes
    channel.exchange_declare(domain, **options)
    [answer] = queue.put([a_letter(domain)])
    assert str(answer).startswith(f"the exchange {domain} is not as letters need it:")
    assert word in str(answer)
    channel.exchange_delete(domain)
    channel.close()


@pytest.mark.parametrize("arguments", [
    {},
    QUORUM,
    {"x-max-priority": 3, "x-queue-mode": "lazy"},
    {"x-max-length": 9, "x-overflow": "reject-publish"},
])  # fmt: skip
def test_a_queue_that_keeps_its_letters_is_used_as_it_is_without_a_word(
    queue: RabbitMQDeadLetterQueue,
    ours: LetterConnection,
    domain: str,
    arguments: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    declare(ours, domain, arguments)
    assert queue.put([a_letter(domain)]) == [None]
    assert len(take(queue, [domain], 1)) == 1
    assert warnings(caplog) == []
    declare(ours, domain, arguments)


@pytest.mark.parametrize(("arguments", "told"), [
    ({**QUORUM, "x-delivery-limit": 5, "x-dead-letter-exchange": "aside"},
     ["x-delivery-limit=5 (leave it out)", ASIDE]),
    ({"x-expires": 600_000, "x-message-ttl": 1, "x-max-priority": 3, "x-max-length": 1,
      "x-max-length-bytes": 9_000, "x-overflow": "drop-head", "x-dead-letter-exchange": "aside",
      "x-dead-letter-routing-key": "7"},
     ["x-message-ttl=1 (leave it out)", "x-expires=600000 (leave it out)",
      "x-max-length=1 (leave it out, or add x-overflow=reject-publish)",
      "x-max-length-bytes=9000 (leave it out, or add x-overflow=reject-publish)", ASIDE]),
])  # fmt: skip
def test_all_by_which_a_queue_could_lose_letters_is_told_once(
    queue: RabbitMQDeadLetterQueue,
    ours: LetterConnection,
    domain: str,
    arguments: Any,
    told: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    declare(ours, domain, arguments)
    assert queue.put([a_letter(domain)]) == [None]
    queue.receive([domain], limit=1, wait=timedelta(0))
    queue._publisher.close()
    assert queue.put([a_letter(domain, 1)]) == [None]
    [warning] = warnings(caplog)
    assert warning == (
        "dead_letters_at_risk: RabbitMQ could lose or move dead letters."
        f" {queue_name(domain)}: {', '.join(told)}."
        " A queue keeps its arguments: once it is empty, delete it and make it anew"
    )
    declare(ours, domain, arguments)


def test_what_one_connection_has_learned_the_next_does_not_ask_for(
    queue: RabbitMQDeadLetterQueue,
    ours: LetterConnection,
    domain: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused: list[str] = []
    read = queue_check.read_difference
    monkeypatch.setattr(
        queue_check, "read_difference", lambda text: refused.append(text) or read(text)
    )
    declare(ours, domain, {"x-max-length": 1, "x-max-priority": 3})
    queue.put([a_letter(domain)])
    assert len(refused) == 3, "the type is the third"
    take(queue, [domain], 1)
    assert len(refused) == 3


def test_a_queue_made_anew_is_looked_at_anew(
    amqp_url: str, ours: LetterConnection, domain: str, caplog: pytest.LogCaptureFixture
) -> None:
    queue = RabbitMQDeadLetterQueue(amqp_url)
    declare(ours, domain, {"x-max-length": 1})
    queue.put([a_letter(domain)])
    ours.connection.channel().queue_delete(queue_name(domain))
    assert queue.put([a_letter(domain)]) == [None], "made as ours"
    declare(ours, domain, QUORUM)
    ours.connection.channel().queue_delete(queue_name(domain))
    declare(ours, domain, {"x-message-ttl": 60_000})
    queue._publisher.close()
    assert queue.put([a_letter(domain)]) == [None]
    assert ["x-max-length=1" in one for one in warnings(caplog)] == [True, False]
    assert "x-message-ttl=60000" in warnings(caplog)[1]
    queue.close()


def test_looking_at_a_queue_that_is_gone_makes_none(
    ours: LetterConnection, unique_name: str
) -> None:
    channel = ours.connection.channel()
    for arguments in (QUORUM, {}, {**QUORUM, "x-delivery-limit": -1}):
        assert QueueCheck().problem(channel, queue_name(unique_name), arguments) is None
        with pytest.raises(amqp.exceptions.NotFound):
            channel.queue_declare(queue_name(unique_name), passive=True)
    channel.close()


@pytest.mark.parametrize("create", [True, False])
def test_who_may_not_declare_uses_what_exists_and_a_line_at_level_debug_says_so(
    amqp_url_to_use_only: str,
    ours: LetterConnection,
    domain: str,
    create: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, logger="angzarr")
    declare(ours, domain, {"x-max-length": 1})
    queue = RabbitMQDeadLetterQueue(amqp_url_to_use_only, create_missing=create)
    assert queue.put([a_letter(domain)]) == [None]
    assert len(take(queue, [domain], 1)) == 1
    queue.close()
    assert warnings(caplog) == []
    told = f"the queue {queue_name(domain)} could not be looked at: ACCESS_REFUSED"
    assert told in caplog.text


def test_who_may_not_declare_is_refused_where_the_queue_is_missing(
    amqp_url_to_use_only: str, ours: LetterConnection, unique_name: str
) -> None:
    queue = RabbitMQDeadLetterQueue(amqp_url_to_use_only)
    [answer] = queue.put([a_letter(unique_name)])
    assert "ACCESS_REFUSED" in str(answer)
    queue.close()
