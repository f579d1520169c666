"""Encrypted bodies, through real workers, brokers and stores: where a secret of an event is not."""

from __future__ import annotations

import base64
import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from celery import chain
from redis import Redis

from angzarr.adapters.celery.publish.sealed_sends import sealing_as
from angzarr.analysis.ledger.entry import Status
from angzarr.delivery.sealed_origin import SealedOrigin
from angzarr.payloads.claim_check import check_in
from polling import wait_until
from system.conftest import Site
from system.test_secrets import analysis_of, raw_letter

CANARY = "canary-4111-1111-1111"
#: More than the threshold: such a body goes to the store.
LARGE = CANARY + "x" * 20_000


def keys(*names: str, current: str) -> dict[str, str]:
    ring = {name: base64.b64encode(name[-1:].encode() * 32).decode() for name in names}
    return {
        "ANGZARR_PAYLOADS__ENCRYPTION_KEYS": json.dumps(ring),
        "ANGZARR_PAYLOADS__ENCRYPTION_KEY": current,
    }


@pytest.fixture
def site(request, tmp_path, monkeypatch, unique_name):
    """A site on the broker named by the test's parameter, which encrypts all bodies."""
    broker, more = getattr(request, "param", ("amqp", {}))
    made = request.getfixturevalue(f"{broker}_site_environment")
    everything = {
        "ROAD_PREFIX": unique_name,
        "ROAD_ASYNC": "0",
        **made,
        "ANGZARR_LEDGER": f"sqlite:///{tmp_path}/ledger.db",
        "ANGZARR_PAYLOADS__URL": f"file://{tmp_path}/bodies",
        "ANGZARR_PAYLOADS__OVER": "10000",
        "ANGZARR_PAYLOADS__ENCRYPT": "all",
        **keys("k1", current="k1"),
        **more,
    }
    with ExitStack() as stack:
        site = Site(tmp_path, everything, monkeypatch)
        stack.callback(site.close)
        site.forget_letters("thing", "unknown")
        yield site


def told_in(url: str) -> list[str]:
    """Return the values of a Redis that tell the secret, each with its key."""
    read = {
        b"string": lambda redis, key: redis.get(key),
        b"hash": lambda redis, key: redis.hgetall(key),
        b"list": lambda redis, key: redis.lrange(key, 0, -1),
        b"set": lambda redis, key: redis.smembers(key),
        b"zset": lambda redis, key: redis.zrange(key, 0, -1, withscores=True),
        b"stream": lambda redis, key: redis.xrange(key),
    }
    with closing(Redis.from_url(url)) as redis:
        values = (
            repr((key, read[kind](redis, key)))
            for key in redis.scan_iter()
            if (kind := redis.type(key)) in read
        )
        told = [value for value in values if CANARY in value]
        # Celery's result backend has an error as it was raised, with what its handler put into it.
        return [value for value in told if "celery-task-meta-" not in value]


def everything_below(folder: Path) -> bytes:
    """Return all files of a test but the journal, in which handlers note what they were given."""
    found = [path for path in folder.rglob("*") if path.is_file() and path.name != "journal"]
    assert found
    return b"".join(path.read_bytes() for path in found)


@pytest.mark.parametrize("site", [("redis", {}), ("amqp", {})], indirect=True)
@pytest.mark.parametrize("filler", [CANARY, LARGE])
def test_a_secret_is_nowhere_from_its_publisher_to_its_replay(site, tmp_path, redis_url, filler):
    thing = site.module.Thing
    site.app.publish(thing(n=1, filler=filler, fate="login"), root="r")
    site.app.publish_many([thing(n=n, filler=filler) for n in (2, 3)], root="r")
    site.module.record.delay([filler])
    site.app.publish(thing(n=4, filler=filler, fate="later", seconds=2.5), root="r")
    assert told_in(redis_url) == []
    login = {"ANGZARR_DLQ__REDACT": json.dumps(["event.**", "args.**", "kwargs.**"])}
    with site.worker(pool="solo", **login):
        site.wait_ran("login")
        raw = raw_letter(site)
        wait_until(lambda: {one["n"] for one in site.ran("handled")} >= {2, 3}, "both")
        wait_until(lambda: len(site.ran("record")) == 1, "the task")
        assert told_in(redis_url) == [], "nor where a delay waits"
        with analysis_of(site) as (waking, wait_until_it_is):
            entry = wait_until_it_is(Status.HELD)
            failure = waking.ledger.open(entry.id).failure
            assert failure.event.data == "[sealed]"
            assert (failure.payload is None) == (filler == CANARY)
            assert waking.replayer.replay(entry, failure, by="me") == ""
            wait_until_it_is(Status.RESOLVED)
        wait_until(lambda: 4 in {one["n"] for one in site.ran("handled")}, "what waited")
    for place in (raw, everything_below(tmp_path), site.text().encode()):
        assert CANARY.encode() not in place
    assert told_in(redis_url) == []
    logins = site.ran("login")
    assert [(run["replay"], run["filler"]) for run in logins] == [(0, filler), (1, filler)]


def test_a_message_on_the_broker_shows_its_names_and_not_its_data(site):
    site.app.publish(site.module.Thing(n=1, filler=CANARY), root="r", tenant_id="acme")
    with site.app.connection_for_write() as connection, connection.channel() as channel:
        queue = next(iter(site.app.amqp.queues))
        message = wait_until(lambda: channel.basic_get(queue), "a message")
    assert CANARY not in f"{message.body}{message.headers}"
    assert message.headers["argsrepr"] == message.headers["kwargsrepr"] == "[sealed]"
    assert check_in(message.headers).key == "k1"


@pytest.mark.parametrize(
    "site", [("redis", {"ANGZARR_PAYLOADS__ENCRYPT": "stored"})], indirect=True
)
def test_what_goes_to_the_store_alone_may_be_encrypted(site, tmp_path):
    thing = site.module.Thing
    site.app.publish(thing(n=1, filler=LARGE, fate="login"), root="r")
    site.app.publish(thing(n=2, filler="small"), root="r")
    (stored,) = [one for one in (tmp_path / "bodies").rglob("*") if one.is_file()]
    assert stored.read_bytes().startswith(b"angzarr-sealed/1 k1 ")
    assert CANARY.encode() not in stored.read_bytes()
    with site.worker(pool="solo"):
        site.wait_ran("login")
        site.wait_ran("handled")
    assert [one["filler"] for one in site.ran("login")] == [LARGE]


@pytest.mark.parametrize("filler", [CANARY, LARGE])
@pytest.mark.parametrize("site", [("amqp", {}), ("sqs", {})], indirect=True)
def test_a_key_is_rotated_between_publish_and_receipt_and_an_old_one_opens_later(site, filler):
    """Published with k1; a worker has k2 in use. A replay needs k1, and waits until it is back."""
    thing = site.module.Thing
    site.app.publish(thing(n=1, filler=filler, fate="login"), root="r")
    with analysis_of(site) as (waking, wait_until_it_is):

        def replay(entry):
            failure = waking.ledger.open(entry.id).failure
            assert waking.replayer.replay(entry, failure, by="me") == ""

        with site.worker(pool="solo", **keys("k1", "k2", current="k2")):
            entry = wait_until_it_is(Status.HELD)
            assert entry.error_type == "angzarr.errors.GiveUp"
        with site.worker(pool="solo", **keys("k2", current="k2")):
            replay(entry)
            entry = wait_until(
                lambda: (one := wait_until_it_is(Status.HELD)).letter_replay == 1 and one,
                "the letter of the replay",
            )
            assert entry.error_type == "angzarr.errors.PayloadKeyMissing"
            assert "encrypted with the key 'k1', which is not among" in entry.error_message
        with site.worker(pool="solo", **keys("k1", "k2", current="k2")):
            replay(entry)
            wait_until_it_is(Status.RESOLVED)
    assert [(one["replay"], one["filler"]) for one in site.ran("login")] == [
        (0, filler),
        (2, filler),
    ]


@contextmanager
def overheard(url: str) -> Iterator[list[str]]:
    """All commands that reach a Redis while the block runs, from whichever process."""
    heard: list[str] = []
    with closing(Redis.from_url(url)) as redis, redis.monitor() as monitor:
        ended = f"the end {uuid.uuid4()}"

        def listen() -> None:
            for command in monitor.listen():
                heard.append(str(command["command"]))
                if ended in heard[-1]:
                    return

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        try:
            yield heard
        finally:
            with closing(Redis.from_url(url)) as other:
                other.echo(ended)
            thread.join(60)
        assert not thread.is_alive()


#: The worker and the analysis have the key and encrypt nothing by themselves.
_NONE = {"ANGZARR_PAYLOADS__ENCRYPT": "none", "ROAD_UNDO": "1"}


@pytest.mark.parametrize("site", [("redis", _NONE), ("amqp", _NONE)], indirect=True)
@pytest.mark.parametrize("filler", [CANARY, LARGE])
def test_what_came_encrypted_goes_on_encrypted_from_processes_that_encrypt_nothing(
    site, tmp_path, redis_url, filler
):
    """A retry with other arguments, by a row and at once; a chain, an errback, a compensation."""
    tasks = site.module
    with overheard(redis_url) as heard:
        with sealing_as(SealedOrigin("k1")):  # as a publisher that encrypts all
            chain(tasks.edits.s(filler, 1.5), tasks.record.si(f"{filler} next")).apply_async(
                link=tasks.record.si(f"{filler} link")
            )
            tasks.edits.delay(filler, 0)
            tasks.refuses.apply_async(link_error=tasks.record.si(f"{filler} errback"))
            site.app.publish(tasks.Thing(n=1, filler=filler, fate="give up"), root="r")
        with site.worker(pool="solo"):
            given = {one["given"] for one in site.wait_ran("edits", 4)}
            assert given == {filler, f"{filler} again"}
            recorded = {str(one["given"]) for one in site.wait_ran("record", 3)}
            assert recorded == {f"{filler} {what}" for what in ("next", "link", "errback")}
            with analysis_of(site) as (waking, wait_until_it_is):
                entry = wait_until(
                    lambda: (one := wait_until_it_is(Status.HELD)).event_id and one, "the letter"
                )
                failure = waking.ledger.open(entry.id).failure
                assert waking.compensator.compensate(entry, failure, by="me") == ""
                assert [one["filler"] for one in site.wait_ran("undo")] == [filler]
    told = [command for command in heard if CANARY in command]
    assert [one for one in told if "celery-task-meta-" not in one] == []
    for place in (everything_below(tmp_path), site.text().encode()):
        assert CANARY.encode() not in place
