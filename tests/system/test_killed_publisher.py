"""A publisher is killed amid its work: what was confirmed to it is on the broker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from kombu import Connection

from angzarr.events import headers as names

PROGRAM = Path(__file__).with_name("publishing_app.py")
#: Confirmed before it is killed.
ENOUGH = 500


def confirmed_until_killed(broker, queue, how):
    """Let the program publish, kill it, and return the ids that it printed as confirmed."""
    command = [sys.executable, PROGRAM, broker, queue, how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        try:
            lines = [line for line, _ in zip(program.stdout, range(ENOUGH), strict=False)]
        finally:
            program.kill()
        lines += program.stdout
    return [line.strip() for line in lines if line.endswith("\n")]


def ids_in(broker, queue):
    with Connection(broker) as connection:
        channel = connection.default_channel
        while (message := channel.basic_get(queue, no_ack=True)) is not None:
            yield channel.message_to_python(message).headers[names.EVENT_ID]


@pytest.mark.parametrize("how", ["one", "many"])
@pytest.mark.parametrize("url", ["redis_url", "amqp_url"])
def test_all_that_was_confirmed_to_a_killed_publisher_is_on_the_broker(
    request, unique_name, url, how
):
    broker = request.getfixturevalue(url)
    confirmed = confirmed_until_killed(broker, unique_name, how)
    assert len(confirmed) >= ENOUGH
    assert set(confirmed) - set(ids_in(broker, unique_name)) == set()
