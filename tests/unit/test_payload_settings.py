"""dlq.payloads: what it may say, what is refused, and what is opened for it."""

from __future__ import annotations

import builtins
import sys

import pytest

from angzarr.adapters.files.payloads import FilePayloadStore
from angzarr.adapters.s3.payloads import S3PayloadStore
from angzarr.dead_letters.offloading_queue import OffloadingQueue
from angzarr.errors import ConfigurationError, MissingExtra
from angzarr.settings.settings import load
from angzarr.wiring import dead_letters as letter_wiring


def payloads(**given):
    return load({"dlq": {"payloads": given}}).dlq.payloads


def test_without_an_address_nothing_is_opened():
    settings = load({})
    assert letter_wiring.open_payloads(settings.dlq.payloads) is None
    queue = letter_wiring.open_dead_letters(settings, "memory://")
    assert not isinstance(queue, OffloadingQueue)


def test_a_folder_is_opened_for_a_file_address(tmp_path):
    store = letter_wiring.open_payloads(payloads(url=f"file://{tmp_path}/a%20b"))
    assert isinstance(store, FilePayloadStore)
    assert str(store) == f"file://{tmp_path}/a%20b"
    assert not (tmp_path / "a b").exists(), "nothing is touched before it is used"


def test_a_bucket_is_opened_for_an_s3_address():
    store = letter_wiring.open_payloads(
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
        ({"url": "/var/payloads"}, "is file:///absolute/folder or s3://bucket/prefix"),
        ({"url": "file://host/var/payloads"}, "is file:///absolute/folder or s3://bucket/prefix"),
        ({"url": "file://relative"}, "is file:///absolute/folder or s3://bucket/prefix"),
        ({"url": "file:///a?b"}, "is file:///absolute/folder or s3://bucket/prefix"),
        ({"url": "s3://"}, "is file:///absolute/folder or s3://bucket/prefix"),
        ({"url": "s3://us3r:s3cret@bucket"}, "is file:///absolute/folder or s3://bucket/prefix"),
        ({"url": "s3://Bucket/x"}, "is file:///absolute/folder or s3://bucket/prefix"),
        ({"url": "gs://bucket"}, "is file:///absolute/folder or s3://bucket/prefix"),
        ({"url": "http://[s3cret"}, "is file:///absolute/folder or s3://bucket/prefix"),
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


def test_a_missing_client_is_told_with_what_brings_it(monkeypatch):
    real = builtins.__import__

    def without_boto3(name, *arguments):
        if name.split(".")[0] == "boto3":
            raise ModuleNotFoundError("No module named 'boto3'", name="boto3")
        return real(name, *arguments)

    monkeypatch.delitem(sys.modules, "angzarr.adapters.s3.payloads", raising=False)
    monkeypatch.setattr(builtins, "__import__", without_boto3)
    with pytest.raises(MissingExtra, match=r"boto3 .* pip install 'angzarr-workers\[s3\]'"):
        letter_wiring.open_payloads(payloads(url="s3://bucket"))
