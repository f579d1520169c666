"""dlq.payloads and payloads: what they may say, what is refused, and what is opened for it."""

from __future__ import annotations

import builtins
import sys

import pytest

from angzarr import Angzarr
from angzarr.adapters.files.payloads import FilePayloadStore
from angzarr.adapters.fsspec.payloads import FsspecPayloadStore
from angzarr.adapters.s3.payloads import S3PayloadStore
from angzarr.dead_letters.offloading_queue import OffloadingQueue
from angzarr.errors import ConfigurationError, MissingExtra
from angzarr.settings.settings import load
from angzarr.wiring import dead_letters as letter_wiring
from angzarr.wiring import payloads as payload_wiring
from angzarr.wiring.startup_checks import check_configured


def payloads(**given):
    return load({"dlq": {"payloads": given}}).dlq.payloads


def test_without_an_address_nothing_is_opened():
    settings = load({})
    assert payload_wiring.open_store(settings.dlq.payloads) is None
    queue = letter_wiring.open_dead_letters(settings, "memory://")
    assert not isinstance(queue, OffloadingQueue)


def test_a_folder_is_opened_for_a_file_address(tmp_path):
    store = payload_wiring.open_store(payloads(url=f"file://{tmp_path}/a%20b"))
    assert isinstance(store, FilePayloadStore)
    assert str(store) == f"file://{tmp_path}/a%20b"
    assert not (tmp_path / "a b").exists(), "nothing is touched before it is used"


def test_a_bucket_is_opened_for_an_s3_address():
    store = payload_wiring.open_store(
        payloads(url="s3://letters/dlq/", region="eu-west-1", endpoint_url="http://localhost:4566")
    )
    assert isinstance(store, S3PayloadStore)
    assert str(store) == "s3://letters/dlq/"


@pytest.mark.parametrize("backend", ["channel", "amqp", "sqs"])
def test_the_queue_of_each_backend_gets_a_store_beside_it(tmp_path, backend):
    settings = load(
        {"dlq": {"backend": backend, "payloads": {"url": f"file://{tmp_path}", "over": 100}}}
    )
    queue = letter_wiring.open_dead_letters(settings, "amqp://localhost")
    assert isinstance(queue, OffloadingQueue)
    queue.close()


def test_the_environment_says_the_same(monkeypatch):
    monkeypatch.setenv("ANGZARR_DLQ__PAYLOADS__URL", "s3://letters")
    monkeypatch.setenv("ANGZARR_DLQ__PAYLOADS__OVER", "200000")
    given = load({}).dlq.payloads
    assert (given.url, given.over) == ("s3://letters", 200_000)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"url": "/var/payloads"}, "is file:///absolute/folder, s3://bucket/prefix, or"),
        ({"url": "file://host/var/payloads"}, "is file:///absolute/folder, s3://bucket/prefix, or"),
        ({"url": "file://relative"}, "is file:///absolute/folder, s3://bucket/prefix, or"),
        ({"url": "file:///a?b"}, "is file:///absolute/folder, s3://bucket/prefix, or"),
        ({"url": "s3://"}, "is file:///absolute/folder, s3://bucket/prefix, or"),
        ({"url": "s3://us3r:s3cret@bucket"}, "is file:///absolute/folder, s3://bucket/prefix, or"),
        ({"url": "s3://Bucket/x"}, "is file:///absolute/folder, s3://bucket/prefix, or"),
        ({"url": "https://host/x"}, "is file:///absolute/folder, s3://bucket/prefix, or"),
        ({"url": "gs://"}, "is file:///absolute/folder, s3://bucket/prefix, or"),
        ({"url": "gs://us3r:s3cret@bucket"}, "is file:///absolute/folder, s3://bucket/prefix, or"),
        ({"url": "gs://bucket/../other"}, "is file:///absolute/folder, s3://bucket/prefix, or"),
        ({"url": "simplecache::gs://b"}, "is file:///absolute/folder, s3://bucket/prefix, or"),
        ({"options": {"token": "s3cret"}}, "options says how to use a payload store"),
        ({"url": "s3://bucket", "options": {"key": "s3cret"}}, "options are for URLs of fsspec"),
        ({"url": "gs://bucket", "region": "eu-west-1"}, "region is for s3:// only"),
        ({"url": "http://[s3cret"}, "is file:///absolute/folder, s3://bucket/prefix, or"),
        ({"over": 5}, "over says how to use a payload store, and url names none"),
        ({"url": "s3://bucket", "over": -1}, "over: Input should be greater than or equal to 0"),
        ({"url": "file:///a", "region": "eu-west-1"}, "region is for s3:// only"),
        ({"url": "file:///a", "endpoint_url": "http://x"}, "endpoint_url is for s3:// only"),
        ({"url": "s3://bucket", "ower": 5}, 'did you mean "dlq.payloads.over"?'),
    ],
)
def test_a_mistake_is_one_sentence_and_repeats_no_secret(given, sentence):
    with pytest.raises(ConfigurationError) as caught:
        payloads(**given)
    assert sentence in str(caught.value)
    assert "dlq.payloads" in str(caught.value).partition(":")[0]
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"url": "http://host/x"}, "payloads.url: a payload store is file:///absolute/folder,"),
        ({"url": "gs://bucket", "region": "x"}, "payloads: region is for s3:// only"),
        (
            {"url": "s3://bucket", "options": {"a": 1}},
            "payloads: options are for URLs of fsspec only",
        ),
        ({"keep": "never"}, "payloads.keep: is a span: write seconds such as 30, or an ISO 8601"),
        ([1], "payloads: is a section: write its settings below it, as name: value"),
    ],
)
def test_a_mistake_among_those_of_messages_is_told_once(given, sentence):
    with pytest.raises(ConfigurationError) as caught:
        load({"payloads": given})
    assert str(caught.value).startswith(sentence)
    assert "; " not in str(caught.value)


def test_a_missing_client_is_told_with_what_brings_it(monkeypatch):
    real = builtins.__import__

    def without_boto3(name, *arguments):
        if name.split(".")[0] == "boto3":
            raise ModuleNotFoundError("No module named 'boto3'", name="boto3")
        return real(name, *arguments)

    monkeypatch.delitem(sys.modules, "angzarr.adapters.s3.payloads", raising=False)
    monkeypatch.setattr(builtins, "__import__", without_boto3)
    with pytest.raises(MissingExtra, match=r"boto3 .* pip install 'angzarr-workers\[s3\]'"):
        payload_wiring.open_store(payloads(url="s3://bucket"))


def test_any_file_system_of_fsspec_is_opened_by_its_url():
    store = payload_wiring.open_store(payloads(url="memory://letters/dlq"))
    assert isinstance(store, FsspecPayloadStore)
    assert str(store) == "memory://letters/dlq/"


def test_a_file_system_that_is_not_there_is_told_with_what_brings_it(monkeypatch):
    for url, sentence in (
        ("carrier-pigeon://loft/one", "fsspec knows no such file system"),
        ("gs://bucket", "pip install gcsfs"),
    ):
        monkeypatch.setitem(sys.modules, "gcsfs", None)
        with pytest.raises(ConfigurationError, match=sentence):
            payload_wiring.open_store(payloads(url=url))


def test_without_a_url_messages_have_no_store():
    assert payload_wiring.open_for_messages(load({}), "redis://x") is None
    assert payload_wiring.open_for_letters(load({})) is None


def test_letters_use_the_store_of_messages_unless_they_have_their_own():
    shared = load({"payloads": {"url": "s3://all/x", "region": "eu-west-1", "over": 5}})
    assert shared.dlq.payloads.url == "s3://all/x"
    assert (shared.dlq.payloads.region, shared.dlq.payloads.over) == ("eu-west-1", None)
    own = load({"payloads": {"url": "s3://all/x"}, "dlq": {"payloads": {"url": "file:///own"}}})
    assert own.dlq.payloads.url == "file:///own"
    assert str(payload_wiring.open_for_letters(own)) == "file:///own or s3://all/x/"
    more = load({"payloads": {"url": "s3://all"}, "dlq": {"payloads": {"largest_opened": 9}}})
    assert (more.dlq.payloads.url, more.dlq.payloads.largest_opened) == ("s3://all", 9)


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"payloads": {"url": "memory://b/x"}}, "payloads.url"),
        ({"dlq": {"payloads": {"url": "memory://b/x"}}}, "dlq.payloads.url"),
    ],
)
def test_a_store_that_is_gone_with_its_process_is_for_a_memory_broker_only(given, key):
    settings = load(given)
    payload_wiring.check_shared(settings, "memory://")
    with pytest.raises(ConfigurationError, match=f"^{key} memory:// is gone with its process"):
        payload_wiring.open_for_messages(settings, "redis://x")
    with pytest.raises(ConfigurationError, match=f"^{key} memory:// is gone with its process"):
        check_configured(
            load(
                {
                    **given,
                    "store": "redis://x",
                    "dlq": {"backend": "kafka", "kafka_brokers": "x:1", **given.get("dlq", {})},
                }
            ),
            "redis://x",
        )


def test_a_publisher_sends_nothing_whose_body_would_be_gone_with_it():
    with Angzarr("shop", broker="redis://nowhere.invalid", payloads={"url": "memory://b"}) as app:
        app.handler("Placed", domain="order", name="a")(lambda event: None)
        with pytest.raises(ConfigurationError, match="memory:// is gone with its process"):
            app.publish({"pad": "x" * 2_000_000}, type="Placed")


def test_the_environment_shares_a_store_too(monkeypatch):
    monkeypatch.setenv("ANGZARR_PAYLOADS__URL", "s3://all/x")
    monkeypatch.setenv("ANGZARR_PAYLOADS__COMPRESSION", "none")
    given = load({})
    assert (given.payloads.compression, given.dlq.payloads.url) == ("none", "s3://all/x")


def test_a_packing_that_is_not_installed_is_told_at_the_start(monkeypatch):
    monkeypatch.setattr(payload_wiring, "packings", dict)
    with pytest.raises(MissingExtra, match=r"pip install 'angzarr-workers\[zstd\]'"):
        payload_wiring.open_for_messages(load({"payloads": {"url": "file:///a"}}), "memory://")
    plain = load({"payloads": {"url": "file:///a", "compression": "none"}})
    assert payload_wiring.open_for_messages(plain, "redis://x") is not None
