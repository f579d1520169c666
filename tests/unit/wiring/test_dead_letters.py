from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.contracts.ledger import letter_of
from tests.unit.dead_letters.letterboxes import Target
from tools.certificates import make_certificates

from angzarr.adapters.kafka.dead_letters import KafkaDeadLetterQueue
from angzarr.dead_letters.letter import Reason
from angzarr.dead_letters.names import check_domains
from angzarr.dead_letters.protection import ProtectedQueue
from angzarr.delivery.handlers import Handlers
from angzarr.errors import ConfigurationError
from angzarr.settings.dead_letters import DeadLetterSettings
from angzarr.settings.settings import load
from angzarr.wiring import dead_letters as letter_wiring

SECURE = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "us",
    "sasl.password": "s3cret",
    "socket.keepalive.enable": True,
    "socket.nagle.disable": 1,
}


def kafka_settings(**more):
    return load({"dlq": {"backend": "kafka", "kafka_brokers": "127.0.0.1:9", **more}})


def test_what_is_said_of_kafka_reaches_it():
    settings = kafka_settings(
        kafka_options=SECURE, kafka_group="mine", kafka_partitions=6, create_missing=False
    )
    queue = letter_wiring.open_dead_letters(settings, "redis://")
    assert queue._cluster.options == SECURE
    assert queue._group == "mine"
    assert (queue._topics._partitions, queue._topics._replication) == (6, -1)
    assert not queue._topics._create_missing
    queue.close()


def test_secrets_of_kafka_are_not_shown():
    settings = kafka_settings(kafka_options=SECURE)
    for text in (repr(settings), str(settings.dlq), settings.model_dump_json()):
        assert "s3cret" not in text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"acks": "1"}, "dlq.kafka_options: acks is chosen so that no letter is lost; remove it"),
        ({"group.id": "s3cret"}, "dlq.kafka_options: group.id is set as kafka_group"),
        ({"ssl.ca.location": ["s3cret"]}, "ssl.ca.location must be text, a number, or yes or no"),
        ("s3cret", "dlq.kafka_options: Input should be a valid dictionary"),
    ],
)
def test_options_that_cannot_be_chosen_are_refused_without_their_values(options, said):
    with pytest.raises(ConfigurationError) as caught:
        kafka_settings(kafka_options=options)
    assert said in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("number", [0, -2])
def test_a_number_of_replicas_that_is_none_is_refused(number):
    with pytest.raises(ConfigurationError, match="kafka_replication"):
        kafka_settings(kafka_replication=number)


def test_options_from_the_environment_are_json(monkeypatch):
    monkeypatch.setenv("ANGZARR_DLQ__KAFKA_OPTIONS", '{"sasl.password": "s3cret"}')
    monkeypatch.setenv("ANGZARR_DLQ__AMQP_TLS__CA_CERTS", "/ca.pem")
    settings = load({})
    assert settings.dlq.plain_kafka_options() == {"sasl.password": "s3cret"}
    assert settings.dlq.amqp_tls.ca_certs == "/ca.pem"


def test_what_is_said_of_rabbitmq_reaches_it(tmp_path):
    files = make_certificates(tmp_path / "tls")
    tls = {"ca_certs": str(files.authority), "server_hostname": "rabbitmq.internal"}
    settings = load({"dlq": {"amqp_tls": tls, "create_missing": False}})
    queue = letter_wiring.open_dead_letters(settings, "amqps://guest@127.0.0.1:9")
    assert queue._cluster[0].tls == tls
    assert not queue._create_missing


def test_a_file_that_is_not_there_is_told_at_start():
    settings = load({"dlq": {"amqp_tls": {"ca_certs": "/nonexistent.pem"}}})
    with pytest.raises(ConfigurationError, match="ca_certs cannot be used: No such file"):
        letter_wiring.open_dead_letters(settings, "amqps://127.0.0.1:9")


def test_a_backend_that_is_not_known_is_told_with_those_that_are():
    with pytest.raises(ConfigurationError, match=r"on 'carrier': use one of amqp, channel, kafka"):
        letter_wiring.open_backend("carrier", DeadLetterSettings(), "")


# -- letters of failed compensations -----------------------------------------------------------


def compensation_letters(**given):
    return letter_wiring.open_compensation_letters(load(given), "memory://")


def test_letters_of_failed_compensations_go_where_all_letters_go():
    assert type(compensation_letters()) is type(
        letter_wiring.open_dead_letters(load({}), "memory://")
    )


def test_letters_of_failed_compensations_may_have_a_queue_of_their_own():
    url = "kafka://127.0.0.1:9?partitions=6"
    queue = compensation_letters(saga_compensation={"dead_letter_queue_url": url})
    assert isinstance(queue, KafkaDeadLetterQueue)
    assert queue._topics._partitions == 6
    queue.close()


def test_a_worker_puts_them_there_and_all_others_where_they_go(monkeypatch):
    opened = []
    monkeypatch.setattr(
        letter_wiring, "open_backend", lambda name, *_: opened.append(name) or Target(name)
    )
    url = "kafka://127.0.0.1:9"
    given = {"dlq": {"backend": "channel"}}
    plain = letter_wiring.open_letterbox(load(given), "memory://")
    assert (opened, plain.put([letter_of(reason=Reason.COMPENSATION)])) == (["channel"], [None])
    opened.clear()
    own = given | {"saga_compensation": {"dead_letter_queue_url": url}}
    box = letter_wiring.open_letterbox(load(own), "memory://")
    assert opened == ["channel", "kafka"]
    box.put([letter_of("a", reason=Reason.COMPENSATION), letter_of("b")])
    assert [len(one.taken) for one in (box._rest, *box._own.values())] == [1, 1]
    assert list(box._own) == [Reason.COMPENSATION]


def test_a_queue_of_their_own_protects_letters_as_any_other():
    queue = compensation_letters(
        dlq={"redact": ["**.password"]},
        saga_compensation={"dead_letter_queue_url": "amqp://127.0.0.1:9"},
    )
    assert isinstance(queue, ProtectedQueue)
    queue.close()


def test_letters_in_memory_lie_with_their_broker():
    assert (
        letter_wiring.channel_of("memory://") == letter_wiring.channel_of("redis://h") == "default"
    )
    assert letter_wiring.channel_of("memory://a") == "a"


def domains(name, **settings):
    """Return the default domain of an app, and all that it reads."""
    app = SimpleNamespace(main=name, settings=load(settings), handlers=Handlers())
    return letter_wiring.default_domain(app), letter_wiring.domains_to_read(app)


def test_letters_of_two_apps_on_one_broker_do_not_mix():
    (shop, read_by_shop), (billing, read_by_billing) = domains("shop"), domains("billing")
    assert {shop, billing} == {"shop", "billing"}
    assert set(read_by_shop) & set(read_by_billing) == {"unknown"}


@pytest.mark.parametrize(
    ("name", "settings", "default", "read"),
    [
        (None, {}, "unknown", ["unknown"]),
        ("shop", {"prefix": "shop-eu"}, "shop-eu", ["shop", "shop-eu", "unknown"]),
        ("shop", {"dlq": {"default_domain": "till"}}, "till", ["shop", "till", "unknown"]),
        ("shop", {"dlq": {"default_domain": "unknown"}}, "unknown", ["shop", "unknown"]),
        # Both would have one queue.
        ("shop_eu", {"dlq": {"domains": ["shop.eu"]}}, "shop.eu", ["shop.eu", "unknown"]),
    ],
)
def test_the_default_domain_is_as_set_or_the_prefixs_or_the_names(name, settings, default, read):
    assert domains(name, **settings) == (default, read)
    check_domains(read)


def test_a_default_domain_that_is_none_is_refused():
    with pytest.raises(ConfigurationError, match="default_domain"):
        load({"dlq": {"default_domain": "Not One"}})
