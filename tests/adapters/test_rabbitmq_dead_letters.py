"""Dead letters on a real RabbitMQ.

Its refusals: nack (a full queue), returned (no queue is bound), a channel closed over one letter,
as when it is too large, no confirm in time, a login and a certificate that are not accepted, and
without `create_missing` what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import amqp
import pytest

from adapters.tls_proxy import TlsProxy
from angzarr.adapters.rabbitmq import letter_publisher
from angzarr.adapters.rabbitmq.dead_letters import RabbitMQDeadLetterQueue
from angzarr.adapters.rabbitmq.link import LetterConnection, read_cluster
from angzarr.adapters.rabbitmq.queue_check import QueueCheck
from angzarr.dead_letters.names import EXCHANGE, queue_name, routing_key
from angzarr.dead_letters.queue import DeadLetterQueue, TooLarge
from angzarr.errors import ConfigurationError, DeadLetterQueueUnavailable
from certificates import Certificates, make_certificates
from contracts.dead_letters import (
    CheckedDeadLetterQueueContract,
    ChoosyRawLettersContract,
    CountedLettersContract,
    ForeignRecordsContract,
    ServerDeadLetterQueueContract,
    a_letter,
    ids,
    letters_of,
    take,
)


class TestRabbitMQDeadLetterQueue(
    ForeignRecordsContract,
    ChoosyRawLettersContract,
    CountedLettersContract,
    ServerDeadLetterQueueContract,
):
    unfit_type = "x" * 256

    @pytest.fixture(autouse=True)
    def backend(self, amqp_url: str) -> Iterator[None]:
        self.url = amqp_url
        self.other = LetterConnection(read_cluster(amqp_url)[0], timeout=5, check=QueueCheck())
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

    def put_record(self, domain: str, raw: bytes, name: str) -> None:
        headers = {"name": name, "x-death": [{"queue": "q", "reason": "expired", "count": 1}]}
        message = amqp.Message(raw, correlation_id=name, application_headers=headers)
        self.other.channel.basic_publish(message, EXCHANGE, routing_key(domain))

    def cut(self, side: Any) -> None:
        """Cut the connection of one side as a failing network would."""
        side._link.connection.transport.sock.shutdown(2)

    def test_the_bare_domain_leads_to_the_queue_as_well(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        """Publishers in other languages use it as the routing key."""
        for name in (domain, f"{domain}.eu"):
            queue.put([a_letter(name)])
            queue.done(take(queue, [name], 1))
            self.other.channel.basic_publish(amqp.Message(b"x"), EXCHANGE, name, mandatory=True)
            [receipt] = take(queue, [name], 1)
            assert receipt.raw == b"x"
            queue.done([receipt])

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
            durable=True,
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

    def test_a_letter_that_closes_the_channel_is_refused_alone(
        self, queue: DeadLetterQueue, domain: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Odd(amqp.Message):
            """RabbitMQ closes the channel over it, as over a letter that is too large for it."""

            def __init__(self, body: bytes, **properties: Any) -> None:
                odd = {"expiration": "never"} if b"<odd>" in body else {}
                super().__init__(body, **properties, **odd)

        monkeypatch.setattr(letter_publisher.amqp, "Message", Odd)
        odd = a_letter(domain, 1, metadata={"mark": "<odd>"})
        answers = queue.put([a_letter(domain, 0), odd, a_letter(domain, 2)])
        assert (answers[0], answers[2]) == (None, None)
        assert "PRECONDITION_FAILED - invalid expiration" in str(answers[1])
        queue.put([a_letter(domain, 3)])
        found = ids(take(queue, [domain], 4))  # the first went twice, and is one
        assert set(found) == {f"{domain}-{number}" for number in (0, 2, 3)}

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
            assert queue.put([a_letter(domain)]) == ["RabbitMQ did not confirm it within 0.5 s"]
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


class TestRabbitMQThatCreatesNothing(CheckedDeadLetterQueueContract):
    @pytest.fixture(autouse=True)
    def backend(self, amqp_url: str) -> Iterator[None]:
        self.url = amqp_url
        self.other_link = LetterConnection(read_cluster(amqp_url)[0], timeout=5, check=QueueCheck())
        yield
        self.other_link.close()

    def open_checking(self) -> DeadLetterQueue:
        return RabbitMQDeadLetterQueue(self.url, create_missing=False)

    def open_creating(self) -> DeadLetterQueue:
        return RabbitMQDeadLetterQueue(self.url)

    def exists(self, domain: str) -> bool:
        channel = self.other_link.connection.channel()
        try:
            channel.queue_declare(queue_name(domain), passive=True)
        except amqp.exceptions.NotFound:
            return False
        return True

    def delete(self, domain: str) -> None:
        self.other_link.channel.queue_delete(queue_name(domain))

    def declare(self, domain: str, **changes: Any) -> None:
        channel = self.other_link.channel
        channel.queue_declare(queue_name(domain), **({"auto_delete": False} | changes))

    def test_a_queue_that_is_not_bound_returns_its_letters(
        self, queue: DeadLetterQueue, other: DeadLetterQueue, domain: str
    ) -> None:
        other.put([a_letter(f"{domain}-any")])
        self.declare(domain, durable=True)
        [answer] = queue.put([a_letter(domain)])
        assert answer == "RabbitMQ returned it: no queue is bound for its domain"

    def test_an_exchange_that_is_missing_is_told(
        self, queue: DeadLetterQueue, domain: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("angzarr.adapters.rabbitmq.topology.EXCHANGE", "angzarr.dlq.nowhere")
        [answer] = queue.put([a_letter(domain)])
        assert "the exchange angzarr.dlq.nowhere does not exist" in str(answer)

    def test_asking_for_what_is_missing_uses_no_channel_up(
        self, queue: RabbitMQDeadLetterQueue, other: DeadLetterQueue, domain: str
    ) -> None:
        other.put([a_letter(f"{domain}-any")])
        for _ in range(3):
            assert queue.receive([domain], limit=1, wait=timedelta(0)) == []
            assert queue.waiting([domain]) == {domain: 0}
        assert queue._receiver._link is not None
        assert len(queue._receiver._link.connection.channels) == 2, "its own, and that of letters"


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


@pytest.fixture(scope="module")
def secure(
    amqp_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Certificates]]:
    """The broker behind TLS, which asks clients for a certificate of its authority."""
    files = make_certificates(tmp_path_factory.mktemp("tls") / "files")
    plain = urlsplit(amqp_url)
    with TlsProxy(plain.hostname, plain.port, files) as proxy:
        netloc = f"{plain.username}:{plain.password}@127.0.0.1:{proxy.port}"
        yield plain._replace(scheme="amqps", netloc=netloc).geturl(), files


def test_letters_go_over_tls_with_both_sides_checked(
    secure: tuple[str, Certificates], unique_name: str
) -> None:
    url, files = secure
    own = {"ca_certs": files.authority, "certfile": files.certificate, "keyfile": files.key}
    queue = RabbitMQDeadLetterQueue(url, tls=own)
    letter = a_letter(unique_name, metadata={"large": "x" * 300_000})
    assert queue.put([letter]) == [None]
    assert take(queue, [unique_name], 1)[0].letter == letter
    queue.close()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ca_certs": None}, "SSLCertVerificationError"),
        ({"server_hostname": "elsewhere"}, "SSLCertVerificationError"),
        ({"certfile": None, "keyfile": None}, "RabbitMQ at 127.0.0.1"),
    ],
)
def test_a_side_that_is_not_who_it_should_be_gets_no_letter(
    secure: tuple[str, Certificates], changes: dict[str, Any], said: str
) -> None:
    url, files = secure
    own = {"ca_certs": files.authority, "certfile": files.certificate, "keyfile": files.key}
    tls = {name: value for name, value in (own | changes).items() if value}
    queue = RabbitMQDeadLetterQueue(url, tls=tls, timeout=timedelta(seconds=2))
    with pytest.raises(DeadLetterQueueUnavailable, match=said):
        queue.put([a_letter("order")])
    queue.close()


def test_tls_files_that_cannot_be_used_are_told_at_start(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("no certificate")
    for tls, said in (
        ({"ca_certs": tmp_path / "none"}, "ca_certs cannot be used: No such file"),
        ({"ca_certs": text}, "ca_certs cannot be used"),
        ({"certfile": text}, "certfile or keyfile cannot be used"),
        ({"keyfile": text}, "a keyfile without its certfile"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            RabbitMQDeadLetterQueue("amqps://h", tls=tls)


def test_celerys_own_forms_of_an_address_are_read() -> None:
    cluster = read_cluster("pyamqp://guest@one//;amqp://two:99")
    assert str(cluster) == "one:5672 or two:99"
    assert [address.virtual_host for address in cluster] == ["/", "/"]
    assert cluster[0].tls is None
