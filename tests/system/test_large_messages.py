"""Bodies that are too large for their broker, through real workers, brokers and S3."""

from __future__ import annotations

import json
import os
import signal
import uuid
from contextlib import ExitStack

import boto3
import pytest
from celery import chain

from angzarr.analysis.ledger.entry import Status
from angzarr.errors import PayloadStoreUnavailable
from angzarr.payloads.claim_check import HEADER
from polling import wait_until
from system.conftest import Site
from system.test_coroutines import CoroutinesSite
from system.test_secrets import analysis_of

MIB = 2**20
#: No broker of these takes it, but for RabbitMQ, which is told what to store.
LARGE = 5 * MIB


def noise(size: int) -> str:
    """Return a text of *size* characters that no packing makes much smaller."""
    return os.urandom(size // 2).hex()


class Store:
    """The bucket of a test and the way to it, which can be cut."""

    def __init__(self, endpoint: str, proxy, url: str) -> None:
        self.proxy = proxy
        self.bucket = f"angzarr-{uuid.uuid4().hex[:10]}"
        self.s3 = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
        self.s3.create_bucket(Bucket=self.bucket)
        self.environment = {
            "ANGZARR_PAYLOADS__URL": f"s3://{self.bucket}/bodies",
            "ANGZARR_PAYLOADS__REGION": "us-east-1",
            "ANGZARR_PAYLOADS__ENDPOINT_URL": url,
        }

    def keys(self) -> list[str]:
        found = self.s3.list_objects_v2(Bucket=self.bucket)
        return [one["Key"] for one in found.get("Contents", ())]

    def clear(self) -> None:
        for key in self.keys():
            self.s3.delete_object(Bucket=self.bucket, Key=key)


@pytest.fixture
def bodies(s3_endpoint, cable):
    return Store(s3_endpoint, *cable(s3_endpoint))


@pytest.fixture
def site(request, tmp_path, monkeypatch, unique_name, bodies):
    """A site on the broker named by the test's parameter, with a payload store."""
    broker = getattr(request, "param", "redis")
    made = request.getfixturevalue(f"{broker}_site_environment")
    more = {
        "ANGZARR_PAYLOADS__OVER": "100000",
        "ANGZARR_LEDGER": f"sqlite:///{tmp_path}/ledger.db",
        "ROAD_ASYNC": "0",
    }
    with ExitStack() as stack:
        everything = {"ROAD_PREFIX": unique_name, **made, **more, **bodies.environment}
        site = Site(tmp_path, everything, monkeypatch)
        stack.callback(site.close)
        site.forget_letters("thing", "unknown")
        yield site


def publish(site, n, size=200_000, **fields):
    site.app.publish(site.module.Thing(n=n, filler=noise(size), **fields), root="r")


@pytest.mark.parametrize("site", ["redis", "amqp", "sqs"], indirect=True)
def test_five_mebibytes_are_handled_retried_and_replayed_from_their_letter(site, bodies):
    with site.worker():
        publish(site, 1, LARGE)
        wait_until(lambda: [one["n"] for one in site.ran("handled")] == [1], "it to be handled")
        publish(site, 2, LARGE, fate="flaky")
        wait_until(
            lambda: {(one["n"], one["attempt"]) for one in site.ran("handled")} >= {(2, 3)},
            "its third attempt",
        )
        site.app.publish_many(
            [site.module.Thing(n=n, filler=noise(LARGE)) for n in (3, 4)], root="r"
        )
        wait_until(lambda: {one["n"] for one in site.ran("handled")} == {1, 2, 3, 4}, "both")
        assert len(bodies.keys()) == 4, "a retry stores nothing again"
        publish(site, 5, LARGE, fate="replayed")
        with analysis_of(site) as (waking, wait_until_it_is):
            entry = wait_until_it_is(Status.HELD)
            failure = waking.ledger.open(entry.id).failure
            assert failure.payload is not None
            assert failure.payload.uri.startswith(f"s3://{bodies.bucket}/bodies/")
            assert len(bodies.keys()) == 5, "nor does its letter"
            assert waking.replayer.replay(entry, failure, by="me") == ""
            wait_until_it_is(Status.RESOLVED)
    assert [one["replay"] for one in site.ran("handle") if one["n"] == 5] == [0, 1]
    assert len(bodies.keys()) == 5, "the replay has the same body"


def test_what_follows_and_what_a_chain_hands_on_is_stored_too(site, bodies):
    record, add = site.module.record, site.module.add
    text = noise(200_000)
    with site.worker(pool="solo"):
        record.delay([text])
        wait_until(lambda: len(site.ran("record")) == 1, "a task with a large argument")
        chain(site.module.echo.s(text), record.s()).delay()
        wait_until(lambda: len(site.ran("record")) == 2, "a step with a large result before it")
        # The large argument of a later step lies in each message before that.
        chain(add.si(1, 2), record.si([text])).delay()
        wait_until(lambda: len(site.ran("record")) == 3, "a step behind a small one")
        later = record.apply_async(args=([text],), countdown=0.5)
        wait_until(lambda: len(site.ran("record")) == 4, "what was sent for later")
        assert later.get(timeout=60) is None
    assert bodies.keys()


@pytest.mark.parametrize("site", ["redis", "amqp"], indirect=True)
def test_who_is_killed_while_it_has_a_large_event_loses_none(site, bodies):
    with site.worker() as first:
        publish(site, 1, LARGE, fate="long", seconds=60, times=1)
        site.wait_ran("handle")
        os.killpg(first.pid, signal.SIGKILL)
        first.wait(60)
    with site.worker():
        wait_until(lambda: site.ran("handled"), "its successor")
    assert [one["attempt"] for one in site.ran("handled")] == [1]
    assert len(bodies.keys()) == 1


@pytest.mark.parametrize("site", ["redis", "amqp", "sqs"], indirect=True)
def test_a_store_that_is_cut_holds_events_and_uses_no_attempt(site, bodies):
    with site.worker():
        publish(site, 1)
        wait_until(lambda: len(site.ran("handled")) == 1, "a first one")
        publish(site, 2)
        publish(site, 3)
        wait_until(lambda: len(site.ran("handled")) == 3, "others")
        bodies.proxy.cut()
        with pytest.raises(PayloadStoreUnavailable, match="does not take payloads"):
            publish(site, 9)
        bodies.proxy.mend()
        publish(site, 4, fate="gated")
        publish(site, 5, fate="gated")  # both children are busy
        wait_until(lambda: len(site.ran("handle")) == 5, "both to begin")
        publish(site, 6)
        bodies.proxy.cut()
        site.journal.with_name("gate").touch()
        wait_until(lambda: "could not fetch its body" in site.text(), "a worker to hold it")
        site.app.publish(site.module.Thing(n=7), root="r")
        wait_until(lambda: 7 in {one["n"] for one in site.ran("handled")}, "a small one meanwhile")
        bodies.proxy.mend()
        wait_until(lambda: 6 in {one["n"] for one in site.ran("handled")}, "what was held")
    assert {(one["n"], one["attempt"]) for one in site.ran("handled")} == {
        (n, 1) for n in (1, 2, 3, 4, 5, 6, 7)
    }


def test_a_body_that_is_gone_is_a_letter_that_says_so(site, bodies):
    publish(site, 1)
    bodies.clear()
    with site.worker(pool="solo"):
        (letter,) = site.letters("thing")
    assert letter.error_type == "angzarr.errors.PayloadGone"
    assert letter.lacks_payload
    assert site.ran("handle") == []


def test_a_worker_without_the_store_makes_a_letter_that_another_can_replay(site, bodies):
    publish(site, 1)
    for name in [*bodies.environment, "ANGZARR_PAYLOADS__OVER"]:
        os.environ.pop(name)
        site.environment.pop(name)
    with site.worker(pool="solo"):
        (letter,) = site.letters("thing")
    assert "this app has no payloads.url: set it" in letter.explanation
    assert letter.payload is not None
    assert HEADER not in letter.message.headers


def test_a_redacted_letter_shows_nothing_of_a_large_body(
    tmp_path, monkeypatch, unique_name, bodies, redis_site_environment, amqp_url
):
    secret = f"s3cret{noise(200_000)}"
    settings = {"backend": "amqp", "amqp_url": amqp_url, "redact": ["**.filler"]}
    environment = {
        **redis_site_environment, **bodies.environment, "ROAD_PREFIX": unique_name,
        "ANGZARR_PAYLOADS__OVER": "100000", "ROAD_ASYNC": "0", "ROAD_DLQ": json.dumps(settings),
    }  # fmt: skip
    site = Site(tmp_path, environment, monkeypatch)
    try:
        site.forget_letters("thing", "unknown")
        with site.worker(pool="solo"):
            site.app.publish(site.module.Thing(n=1, fate="give up", filler=secret), root="r")
            (letter,) = site.letters("thing")
    finally:
        site.close()
    assert letter.payload is None
    assert b"s3cret" not in letter.message.body
    assert letter.event.data["n"] == 1


def test_coroutines_go_on_while_a_body_is_waited_for(make_site, redis_url, bodies):
    environment = {**bodies.environment, "ANGZARR_PAYLOADS__OVER": "100000"}
    site = make_site(broker=redis_url, make=CoroutinesSite, **environment)
    publish(site, 1, LARGE)
    bodies.proxy.cut()
    with site.coroutines():
        wait_until(lambda: "could not fetch its body" in site.text(), "it to be held")
        for n in range(20):
            site.module.mark.delay(n)
        site.wait_ran("mark", 20)
        assert site.ran("handle") == site.ran("gathered") == []
        bodies.proxy.mend()
        site.wait_ran("gathered")  # by coroutines, in a batch
        site.wait_ran("handled")  # by a function
    assert [one["attempt"] for one in site.ran("handled")] == [1]
    assert len(bodies.keys()) == 1, "two handlers share one body"


@pytest.mark.parametrize("pool", ["threads", "gevent"])
def test_every_pool_fetches_large_bodies(site, bodies, pool):
    with site.worker(pool=pool):
        for n in range(6):
            publish(site, n, MIB, fate="flaky" if n % 2 else "fine")
        wait_until(lambda: len(site.ran("handled")) == 6, "all of them")
    assert len(bodies.keys()) == 6
