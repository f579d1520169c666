"""From settings to a chain with a spool behind it, and back out of the spool."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.contracts.ledger import letter_of
from tools.certificates import make_certificates

from angzarr.adapters.kafka.dead_letters import KafkaDeadLetterQueue
from angzarr.adapters.memory.dead_letters import DiscardedDeadLetterQueue, MemoryDeadLetterQueue
from angzarr.adapters.opentelemetry.letter_meters import LetterMeters
from angzarr.dead_letters.letter import Reason
from angzarr.dead_letters.names import check_domains
from angzarr.dead_letters.protection import ProtectedQueue
from angzarr.delivery.handlers import Handlers
from angzarr.errors import ConfigurationError
from angzarr.settings.dead_letters import DeadLetterSettings
from angzarr.settings.settings import load
from angzarr.wiring import dead_letters as letter_wiring
from angzarr.wiring import startup_checks as checks
from contracts.dead_letters import a_letter, letters_of
from polling import wait_until
from unit.dead_letters.letterboxes import Target

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
        ("s3cret", "dlq.kafka_options: is a mapping: write name: value below it"),
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
    forwarder = letter_wiring.open_forwarder(prepared, BROKER)
    assert forwarder.batch().forwarded == 3
    assert kafka.taken == [f"order-{n}" for n in range(3)]
    assert forwarder.batch().empty


def test_a_thread_forwards_what_an_earlier_process_left(kafka, prepared):
    kafka.leave()
    letter_wiring.open_dead_letters(prepared, BROKER).put([a_letter("order")])
    kafka.come_back()
    thread = letter_wiring.open_forwarder_thread(prepared, BROKER)
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
    assert letter_wiring.open_forwarder_thread(given, BROKER) is None
    checks._check_spool(given)
    with pytest.raises(ConfigurationError, match="this app has no spool: its letters are held"):
        letter_wiring.spool_path(given)


def test_the_folder_of_a_worker_that_is_gone_can_be_forwarded_from_anywhere(kafka, prepared):
    kafka.leave()
    letter_wiring.open_dead_letters(prepared, BROKER).put([a_letter("order")])
    kafka.come_back()
    plain = load({"dlq": {"backend": "kafka", "kafka_brokers": "h:9092"}})
    forwarder = letter_wiring.open_forwarder(plain, BROKER, Path(prepared.dlq.spool.path))
    assert forwarder.batch().forwarded == 1


def test_who_forwards_tells_how_full_the_spool_is(kafka, prepared, monkeypatch):
    told = []
    monkeypatch.setattr(LetterMeters, "observe", lambda _self, tally, _now: told.append(tally()))
    letter_wiring.open_forwarder_thread(prepared, BROKER)
    assert told[0].letters == 0


def test_a_single_backend_is_no_chain():
    channel = load({"dlq": {"backend": "channel"}})
    none = load({"dlq": {"backend": "none", "accept_loss": True}})
    assert isinstance(letter_wiring.open_dead_letters(channel, BROKER), MemoryDeadLetterQueue)
    assert isinstance(letter_wiring.open_dead_letters(none, BROKER), DiscardedDeadLetterQueue)
    assert letter_wiring.places(load({}), BROKER) == ("amqp",)


def test_an_analysis_worker_reads_a_chain(prepared):
    checks.check_analysis(prepared, BROKER)
