"""A broker whose client is not installed says what to install, and hides no other mistake."""

from __future__ import annotations

import click
import pytest

from angzarr.adapters.celery.connection import client_of
from angzarr.errors import MissingExtra


@pytest.mark.parametrize(
    ("broker", "missing", "extra"),
    [
        ("redis://:hunter2@h/0", "redis", "redis"),
        ("rediss://h", "packaging", "redis"),  # kombu's transport needs it, and does not bring it
        ("sentinel://a;sentinel://b", "redis", "redis"),
        ("sqs://", "botocore", "sqs"),
        ("sqs", "pycurl", "sqs"),
    ],
)
def test_a_missing_client_names_the_extra_that_brings_it(broker, missing, extra):
    with pytest.raises(MissingExtra) as caught, client_of(broker):
        raise ModuleNotFoundError(name=missing)
    assert f"pip install 'angzarr-workers[{extra}]'" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert isinstance(caught.value, click.ClickException), "`celery worker` shows it in one line"
    assert caught.value.format_message() == str(caught.value)


def test_a_module_that_is_missing_for_another_broker_stays_what_it_is():
    with pytest.raises(ModuleNotFoundError, match="mine"), client_of("amqp://h"):
        raise ModuleNotFoundError("mine")
