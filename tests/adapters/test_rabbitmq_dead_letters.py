from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import amqp
import pytest

from angzarr.adapters.rabbitmq import letter_publisher
from angzarr.adapters.rabbitmq.address import read_cluster
from angzarr.adapters.rabbitmq.dead_letters import RabbitMQDeadLetterQueue
from angzarr.adapters.rabbitmq.link import Link
from angzarr.dead_letters.names import EXCHANGE, queue_name, routing_key
from angzarr.dead_letters.queue import DeadLetterQueue, TooLarge
from angzarr.errors import ConfigurationError, DeadLetterQueueUnavailable
from contracts.dead_letters import ServerDeadLetterQueueContract, a_letter, ids, letters_of, take


class TestRabbitMQDeadLetterQueue(ServerDeadLetterQueueContract):
    @pytest.fixture(autouse=True)
    def backend(self, amqp_url: str) -> Iterator[None]:
        self.url = amqp_url
        self.other = Link(read_cluster(amqp_url)[0], timeout=5)
        yield
        self.other.close()

    def open(self) -> DeadLetterQueue:
        return RabbitMQDeadLetterQueue(self.url)

    def open_away(self, port: int) -> DeadLetterQueue:
        return RabbitMQDeadLetterQueue(
            f"amqp://s3cret:s3cret@127.0.0.1:{port}/s3cret", timeout=timedelta(seconds=1)
        )

    def put_raw(self, domain: str, raw: bytes, content_type: str | None) -> None:
        properties = {"content_type": content_type} if content_type else {}
        message = amqp.Message(raw, content_encoding="utf-8", **properties)
        self.other.channel.basic_publish(message, EXCHANGE, routing_key(domain))

    def cut(self, side: Any) -> None:
        """Cut the connection of one side as a failing network would."""
        side._link.connection.transport.sock.shutdown(2)

    def test_the_queue_is_durable_and_a_quorum_queue(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        queue.put([a_letter(domain)])
        self.other.channel.queue_declare(
            queue_name(domain),
            durable=True,
            auto_delete=False,
            arguments={"x-queue-type": "quorum"},
        )

    def test_a_nack_is_a_refusal_of_that_letter(self, queue: DeadLetterQueue, domain: str) -> None:
        self.other.channel.queue_declare(
            queue_name(domain),
            auto_delete=False,
            arguments={"x-max-length": 1, "x-overflow": "reject-publish"},
        )
        answers = queue.put([*letters_of(domain, 3), a_letter(f"{domain}-other")])
        assert answers[0] is None
        assert answers[3] is None
        assert "nack" in str(answers[1])
        assert "nack" in str(answers[2])

    def test_a_queue_that_was_deleted_is_declared_again(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        queue.put([a_letter(domain)])
        self.other.channel.queue_delete(queue_name(domain))
        assert queue.put(letters_of(domain, 2)) == [None, None]
        assert len(take(queue, [domain], 2)) == 2
        self.other.channel.queue_delete(queue_name(domain))
        assert queue.receive([domain], limit=1, wait=timedelta(seconds=1)) == []  # told so here
        queue.put(letters_of(domain, 2))
        assert len(take(queue, [domain], 2)) == 2

    def test_an_exchange_of_another_type_is_a_refusal_with_the_reason(
        self, queue: DeadLetterQueue, domain: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("angzarr.adapters.rabbitmq.topology.EXCHANGE", "amq.direct")
        [answer] = queue.put([a_letter(domain)])
        assert "amq.direct" in str(answer)

    def test_a_put_on_a_dead_connection_connects_again(
        self, queue: RabbitMQDeadLetterQueue, domain: str
    ) -> None:
        queue.put([a_letter(domain)])
        self.cut(queue._publisher)
        assert queue.put([a_letter(domain, 1)]) == [None]
        assert len(take(queue, [domain], 2)) == 2

    def test_a_put_after_a_long_idle_time_trusts_no_old_connection(
        self, queue: RabbitMQDeadLetterQueue, domain: str
    ) -> None:
        queue.put([a_letter(domain)])
        before = queue._publisher._link
        queue._publisher._used_at -= letter_publisher._STALE + 1
        assert queue.put([a_letter(domain, 1)]) == [None]
        assert queue._publisher._link is not before

    def test_letters_received_by_a_lost_connection_come_back(
        self, queue: RabbitMQDeadLetterQueue, domain: str
    ) -> None:
        queue.put(letters_of(domain, 2))
        taken = take(queue, [domain], 2)
        self.cut(queue._receiver)
        again = take(queue, [domain], 2)
        assert ids(again) == ids(taken)
        queue.done(taken)
        queue.done(again)
        assert queue.receive([domain], limit=2, wait=timedelta(milliseconds=200)) == []

    def test_confirms_that_do_not_come_are_told_within_the_time_out(
        self, domain: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue = RabbitMQDeadLetterQueue(self.url, timeout=timedelta(milliseconds=500))
        queue.put([a_letter(domain)])
        with monkeypatch.context() as patch:
            patch.setattr(queue._publisher, "_settle", lambda *_, **__: None)
            started = time.monotonic()
            assert queue.put([a_letter(domain)]) == ["RabbitMQ did not confirm it within 0.5 s"]
            assert time.monotonic() - started < 5
        assert queue.put([a_letter(domain)]) == [None]
        queue.close()

    def test_the_next_broker_of_the_cluster_is_tried(self, domain: str) -> None:
        queue = RabbitMQDeadLetterQueue(f"amqp://127.0.0.1:9;{self.url}")
        assert queue.put([a_letter(domain)]) == [None]
        assert len(take(queue, [domain], 1)) == 1
        queue.close()

    def test_a_wrong_password_is_told_without_it(self, domain: str) -> None:
        wrong = urlsplit(self.url)
        netloc = f"guest:s3cret@{wrong.hostname}:{wrong.port}"
        queue = RabbitMQDeadLetterQueue(wrong._replace(netloc=netloc).geturl())
        with pytest.raises(DeadLetterQueueUnavailable, match="AccessRefused") as caught:
            queue.put([a_letter(domain)])
        assert "s3cret" not in str(caught.value)

    def test_a_letter_larger_than_one_frame_arrives_whole(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        letter = a_letter(domain, metadata={"large": "x" * 1_000_000})
        assert queue.put([letter]) == [None]
        assert take(queue, [domain], 1)[0].letter == letter

    def test_a_letter_that_nobody_would_read_is_too_large_though_rabbitmq_takes_it(
        self, queue: DeadLetterQueue, domain: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(letter_publisher, "MAX_LETTER_BYTES", 5_000)
        large = [a_letter(domain, n, metadata={"large": "x" * 5_000}) for n in (1, 3)]
        answers = queue.put([a_letter(domain), large[0], a_letter(domain, 2), large[1]])
        assert (answers[0], answers[2]) == (None, None)
        assert [isinstance(answers[at], TooLarge) for at in (1, 3)] == [True, True]
        assert ids(take(queue, [domain], 2)) == [f"{domain}-0", f"{domain}-2"]
        assert isinstance(queue.put([large[0]])[0], TooLarge)

    def test_an_id_that_amqp_cannot_carry_is_carried_in_the_letter(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        letter = a_letter(domain, id="ö" * 300)
        assert queue.put([letter]) == [None]
        assert take(queue, [domain], 1)[0].letter == letter


@pytest.mark.parametrize("url", ["localhost", "http://h", "amqp://h:port/"])
def test_a_malformed_address_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ConfigurationError, match="amqp://user:password@host"):
        RabbitMQDeadLetterQueue(url)


def test_the_address_is_read_and_shown_without_its_secrets() -> None:
    [address] = cluster = read_cluster("amqps://us%40er:pa%2Fss@[::1]/v%2Fhost")
    assert (address.user, address.password) == ("us@er", "pa/ss")
    assert (address.virtual_host, address.tls) == ("v/host", {"server_hostname": "::1"})
    assert str(cluster) == "[::1]:5671"
    assert "pa/ss" not in repr(cluster)


def test_celerys_own_forms_of_an_address_are_read() -> None:
    cluster = read_cluster("pyamqp://guest@one//;amqp://two:99")
    assert str(cluster) == "one:5672 or two:99"
    assert [address.virtual_host for address in cluster] == ["/", "/"]
    assert cluster[0].tls is None
