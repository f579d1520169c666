from __future__ import annotations

import os
import sys

import pytest

from angzarr.testing import Aws
from angzarr.testing.cloud import localstack_address, open_localstack


@pytest.fixture
def nowhere(monkeypatch):
    for name in ("CI", "ANGZARR_TEST_SQS_ENDPOINT", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize("number", [1, 2])
def test_aws_is_empty_in_each_test_and_leads_nowhere_else(aws, number):
    assert "AWS_ENDPOINT_URL" not in os.environ
    sqs = aws.client("sqs")
    assert sqs.list_queues().get("QueueUrls", []) == []
    sqs.create_queue(QueueName="angzarr-dlq-order")


def test_without_moto_it_is_said_what_to_install(request, monkeypatch):
    monkeypatch.setitem(sys.modules, "moto", None)
    with pytest.raises(pytest.fail.Exception, match=r"angzarr-workers\[testing\]") as raised:
        request.getfixturevalue("aws")
    assert raised.value.__context__ is None, "pytest would show the sentence once for each"


def test_without_localstack_a_test_is_skipped_with_a_sentence(nowhere):
    with pytest.raises(pytest.skip.Exception, match="no LocalStack: start one and name it"):
        localstack_address()


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("localhost:4566", "ANGZARR_TEST_SQS_ENDPOINT is not a URL"),
        ("http://127.0.0.1:1", "no LocalStack answers at http://127.0.0.1:1"),
    ],
)
def test_in_ci_it_fails_instead(nowhere, address, said):
    nowhere.setenv("CI", "true")
    nowhere.setenv("ANGZARR_TEST_SQS_ENDPOINT", address)
    with pytest.raises(pytest.fail.Exception) as raised:
        open_localstack()
    assert str(raised.value).startswith(said)
    assert str(raised.value).endswith("(in CI it must be there)")


def test_settings_lead_to_it():
    found = Aws(endpoint_url="http://localhost:4566", key="123456789012")
    assert found.dlq["aws_options"]["aws_access_key_id"] == "123456789012"
