"""The settings of dead letters: what is refused, with which words, and what is never shown."""

from __future__ import annotations

from datetime import timedelta

import pytest

from angzarr.adapters.sqs.dead_letters import SnsSqsDeadLetterQueue, SqsDeadLetterQueue
from angzarr.errors import ConfigurationError
from angzarr.settings.settings import load
from angzarr.wiring.dead_letters import open_dead_letters


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            {"aws_options": {"verfy": False}},
            "boto3's client takes no verfy; it takes aws_access",
        ),
        ({"aws_options": {"region_name": "x"}}, "takes no region_name"),
        ({"aws_options": "verify"}, "dlq.aws_options"),
        ({"aws_endpoint_url": "localhost:4566"}, "must be a URL of http:// or https://"),
        ({"aws_endpoint_url": "http://"}, "must be a URL of http:// or https://"),
        ({"aws_endpoint_url": "http://h:x"}, "must be a URL of http:// or https://"),
        ({"aws_visibility": 1}, "dlq.aws_visibility"),
        ({"aws_visibility": 12 * 3600 + 1}, "dlq.aws_visibility"),
        ({"backend": "sns"}, "dlq.backend"),
    ],
)
def test_what_aws_would_not_take_is_refused_at_start(said, told):
    with pytest.raises(ConfigurationError, match=told):
        load({"dlq": {"backend": "sns_sqs", **said}})


def test_keys_of_aws_are_not_shown():
    dlq = {"backend": "sqs", "aws_options": {"aws_secret_access_key": "s3cret"}}
    assert "s3cret" not in repr(load({"dlq": dlq}))
    with pytest.raises(ConfigurationError) as caught:
        load({"dlq": {**dlq, "aws_options": {"aws_secret_access_key": ["s3cret"]}}})
    assert "s3cret" not in str(caught.value)


def test_the_environments_false_is_no_files_name(monkeypatch):
    monkeypatch.setenv("ANGZARR_DLQ__AWS_OPTIONS__VERIFY", "false")
    monkeypatch.setenv("ANGZARR_DLQ__AWS_OPTIONS__USE_SSL", "True")
    assert load({}).dlq.aws_options == {"verify": False, "use_ssl": True}


@pytest.mark.parametrize(
    ("backend", "adapter"), [("sqs", SqsDeadLetterQueue), ("sns_sqs", SnsSqsDeadLetterQueue)]
)
def test_every_setting_of_aws_reaches_its_backend(backend, adapter):
    settings = load(
        {
            "dlq": {
                "backend": backend,
                "aws_region": "eu-central-1",
                "aws_endpoint_url": "http://localhost:1",
                "aws_profile": "shop",
                "aws_options": {"verify": False},
                "aws_fifo": True,
                "aws_visibility": 60,
                "create_missing": False,
            }
        }
    )
    queue = open_dead_letters(settings, "memory://")
    assert type(queue) is adapter
    service = queue._service
    assert (service.region, service.endpoint_url) == ("eu-central-1", "http://localhost:1")
    assert (service.profile, service.options) == ("shop", {"verify": False})
    assert (queue._queues.fifo, queue._queues.create_missing) == (True, False)
    assert queue._visibility == timedelta(minutes=1)
