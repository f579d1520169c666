"""Bodies in S3 that nothing needs any more are deleted, through real workers and brokers."""

from __future__ import annotations

import json
import os
import signal
from base64 import b64encode
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.ledger.payload_upkeep import LettersBodies
from angzarr.payloads.collector import PayloadState
from polling import wait_until
from system.test_large_messages import Store, publish, site  # noqa: F401 - a fixture
from system.test_secrets import analysis_of

HELD, FREE = PayloadState.HELD, PayloadState.FREE


KEYS = {
    "ANGZARR_PAYLOADS__ENCRYPT": "all",
    "ANGZARR_PAYLOADS__ENCRYPTION_KEYS": json.dumps({"k1": b64encode(b"k" * 32).decode()}),
}


@pytest.fixture(params=["plain", "encrypted"])
def bodies(request, s3_endpoint, cable):
    """A bucket of bodies that are as they were sent, or encrypted with all others."""
    store = Store(s3_endpoint, *cable(s3_endpoint))
    if request.param == "encrypted":
        store.environment |= KEYS
    return store


class Register:
    """The register of a site's bodies, which can grow older."""

    def __init__(self, ops) -> None:
        self.ops = ops
        self.holders = ops.payload_holders()

    def count(self, state: PayloadState) -> int:
        return self.holders.count()[state].bodies

    def age(self, days: int = 3) -> None:
        """Let days pass for all that is registered, in Redis."""
        client = self.holders._client
        for state in PayloadState:
            key = f"{self.holders.base}:{state.value}"
            for uri in client.execute("ZRANGE", key, 0, -1):
                client.execute("ZINCRBY", key, -days * 86_400_000, uri)

    def collect(self) -> int:
        with closing(self.ops.open_payload_collector()) as collector:
            return collector.collect()


@pytest.mark.parametrize("site", ["redis", "amqp"], indirect=True)
def test_unneeded_bodies_are_deleted_and_needed_ones_are_not(site, bodies):  # noqa: F811
    register = Register(site.app.ops)
    with site.worker() as first:
        publish(site, 1)
        publish(site, 2, fate="flaky")
        publish(site, 3, fate="replayed")
        publish(site, 4, fate="long", seconds=60, times=1)
        wait_until(lambda: {one["n"] for one in site.ran("handled")} >= {1, 2}, "two of them")
        wait_until(lambda: 4 in {one["n"] for one in site.ran("handle")}, "one that is long")
        wait_until(lambda: register.count(FREE) == 2, "their bodies to be free")
        os.killpg(first.pid, signal.SIGKILL)
        first.wait(60)
    register.age()
    assert (register.collect(), len(bodies.keys())) == (2, 2), "one in a queue, one in a letter"
    with site.worker(), analysis_of(site) as (waking, wait_until_it_is):
        wait_until(lambda: 4 in {one["n"] for one in site.ran("handled")}, "its successor")
        wait_until(lambda: register.count(FREE) == 1, "its body to be free")
        entry = wait_until_it_is(Status.HELD)
        register.age()
        assert (register.collect(), len(bodies.keys())) == (1, 1), "the letter has its body"
        failure = waking.ledger.open(entry.id).failure
        assert waking.replayer.replay(entry, failure, by="me") == ""
        wait_until_it_is(Status.RESOLVED)
        wait_until(lambda: 3 in {one["n"] for one in site.ran("handled")}, "its replay")
        register.age()
        assert (register.collect(), len(bodies.keys())) == (0, 1), "the entry has it still"
        soon = datetime.now(UTC) + timedelta(days=1)
        assert waking.ledger.prune({Status.RESOLVED: soon}, limit=9) == 1
        with closing(site.app.ops.open_released_payloads()) as released:
            LettersBodies(released, register.holders).remove(soon)
        wait_until(lambda: register.count(HELD) == 0, "the replay's claim to end")
        assert register.collect() == 0, "its grace begins now"
        register.age()
        assert (register.collect(), bodies.keys()) == (1, [])
