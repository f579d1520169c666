from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.errors import ConfigurationError
from angzarr.settings.dead_letters import DeadLetterSettings
from angzarr.settings.dlq_urls import place_of, read_url

SCHEMES = ["kafka", "amqp", "amqps", "sqs", "sns-sqs", "pubsub", "spool"]


def same(one, other):
    return bool(read_url(one).spots & read_url(other).spots)


def test_a_kafka_is_its_brokers():
    place = read_url("kafka://one:9092,Two")
    assert (place.backend, place.shown) == ("kafka", "kafka://one:9092,two:9092")
    given_ = place.settings(kafka_group="mine")
    assert given_.kafka_brokers == "one:9092,two:9092"
    assert given_.kafka_group == "mine"


def test_options_of_kafka_and_its_client_are_read_and_not_shown():
    url = (
        "kafka://us%40er:pa%2Fss@h?group=g&partitions=6&replication=3&security.protocol=SASL_SSL"
        "&sasl.mechanism=PLAIN&create_missing=false"
    )
    place = read_url(url)
    settings = place.settings()
    assert settings.plain_kafka_options() == {
        "sasl.username": "us@er",
        "sasl.password": "pa/ss",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
    }
    assert (settings.kafka_group, settings.kafka_partitions) == ("g", 6)
    assert (settings.kafka_replication, settings.create_missing) == (3, False)
    for text in (place.shown, repr(place), repr(settings)):
        assert "pa/ss" not in text
        assert "us@er" not in text


def test_a_rabbitmq_keeps_its_url_and_its_files():
    place = read_url("amqps://u:s3cret@h/shop?ca_certs=/ca.pem;amqps://u:s3cret@i:99/shop")
    settings = place.settings()
    assert settings.amqp_url == "amqps://u:s3cret@h/shop;amqps://u:s3cret@i:99/shop"
    assert settings.amqp_tls.ca_certs == "/ca.pem"
    assert place.shown == "amqps://h:5671/shop or amqps://i:99/shop"
    assert "s3cret" not in repr(place)


def test_aws_is_a_region_and_maybe_an_endpoint():
    place = read_url("sqs://eu-central-1?endpoint=http://user:s3cret@localhost:4566")
    settings = place.settings()
    assert settings.aws_region == "eu-central-1"
    assert settings.aws_endpoint_url == "http://user:s3cret@localhost:4566"
    assert place.shown == "sqs://eu-central-1 at localhost:4566"
    assert read_url("sqs://").settings().aws_region is None
    assert read_url("sns-sqs://eu-central-1").backend == "sns_sqs"
    other = read_url("sqs://r?profile=billing&fifo=true").settings()
    assert (other.aws_profile, other.aws_fifo) == ("billing", True)


def test_pubsub_is_named_by_its_project():
    assert read_url("pubsub://my-project").given["pubsub_project"] == "my-project"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("kafka://localhost:9092", "kafka://127.0.0.1?group=other"),
        ("kafka://one,two", "kafka://TWO:9092,three"),
        ("amqp://one:pw@localhost//", "amqp://two@127.0.0.1:5672/%2F"),
        ("amqp://a/v;amqp://b/v", "pyamqp://b/v"),
        ("sqs://eu-central-1", "sns-sqs://eu-central-1"),
        ("sqs://r?endpoint=http://localhost:4566", "sqs://r?endpoint=https://127.0.0.1:4566"),
        ("spool:///var/spool/", "spool:///var/./lib/../spool?max_bytes=9"),
    ],
)
def test_one_place_under_two_names_is_one_place(one, other):
    assert same(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("kafka://one", "kafka://one:9093"),
        ("amqp://one/a", "amqp://one/b"),
        ("sqs://eu-central-1", "sqs://us-east-1"),
        ("sqs://r", "sqs://r?endpoint=http://localhost:4566"),
        ("pubsub://a", "pubsub://b"),
        ("kafka://one", "amqp://one"),
        ("spool:///one", "spool:///one/two"),
    ],
)
def test_two_places_are_two(one, other):
    assert not same(one, other)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "the URL does not name a"),
        ("s3cret", "the URL does not name a"),
        ("redis://:s3cret@h", "redis:// does not name a"),
        ("kafka://", "named by its brokers"),
        ("kafka://u:s3cret@", "named by its brokers"),
        ("kafka://[h", "cannot be read"),
        ("spool://s3cret/spool", "a spool is named by its folder"),
        ("spool:///", "a spool is named by its folder"),
        ("spool:///folder?max_byte=s3cret", "takes no option 'max_byte'"),
        ("sqs://r?endpoint=http://[s3cret", "cannot be read"),
        ("amqp://h;u:s3cret@i", "split by ';'"),
        ("amqp://h;kafka://u:s3cret@i", "split by ';'"),
        ("kafka://h?grop=s3cret", "takes no option 'grop'"),
        ("sqs://r?group=s3cret", "takes no option 'group'"),
        ("amqp://h?create_missing=s3cret", "create_missing is true or false"),
    ],
)
def test_what_cannot_be_meant_is_refused_without_repeating_it(url, said):
    with pytest.raises(ConfigurationError, match=said) as caught:
        read_url(url)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("kafka://h?partitions=s3cret", "kafka_partitions"),
        ("kafka://h?acks=0", "takes no option"),
        ("kafka://h?group.id=s3cret", "group.id is set as kafka_group"),
    ],
)
def test_values_that_do_not_fit_are_refused_without_repeating_them(url, said):
    with pytest.raises(ConfigurationError, match=said) as caught:
        read_url(url).settings()
    assert "s3cret" not in str(caught.value)


def test_a_spool_is_its_folder():
    place = read_url("spool:///var/lib/my%20spool?max_bytes=4096&create_missing=false")
    assert (place.backend, place.shown) == ("spool", "spool:///var/lib/my spool")
    assert (place.spool().path, place.spool().max_bytes) == ("/var/lib/my spool", 4096)
    assert not place.create_missing
    assert read_url("spool:///spool").create_missing


def test_a_link_to_a_spool_leads_to_the_same_place(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "spool")
    assert same(f"spool://{tmp_path}/link", f"spool://{tmp_path}/spool")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("spool:///spool?max_bytes=s3cret", "max_bytes: Input should be a valid integer"),
        ("spool:///spool?max_bytes=0", "max_bytes: Input should be greater than 0"),
        ("spool:spool", "path must begin at the root"),
    ],
)
def test_values_that_no_spool_has_are_refused_without_repeating_them(url, said):
    with pytest.raises(ConfigurationError, match=said) as caught:
        read_url(url).spool()
    assert "s3cret" not in str(caught.value)


@given(url=st.text() | st.builds("{}://{}".format, st.sampled_from(SCHEMES), st.text()))
def test_hostile_urls_raise_nothing_else(url):
    with contextlib.suppress(ConfigurationError):
        read_url(url)


def test_an_apps_queue_is_the_place_that_its_settings_mean():
    kafka = DeadLetterSettings(backend="kafka", kafka_brokers="localhost:9092")
    assert place_of("kafka", kafka, "redis://h").spots == read_url("kafka://127.0.0.1").spots
    of_broker = place_of("amqp", DeadLetterSettings(), "amqp://u:s3cret@h//")
    assert of_broker.spots == read_url("amqp://h").spots
    assert of_broker.shown == "amqp://h:5672/"
    sqs = DeadLetterSettings(backend="sqs", aws_region="r", aws_endpoint_url="http://localhost:1")
    assert place_of("sqs", sqs, "").spots == read_url("sqs://r?endpoint=http://127.0.0.1:1").spots
    spool = DeadLetterSettings(
        targets=("amqp", "spool"), spool={"path": "/var/spool", "durable": True}
    )
    assert place_of("spool", spool, "").spots == read_url("spool:///var/spool/").spots
    channel = place_of("channel", DeadLetterSettings(), "memory://")
    assert channel.shown == "channel"
