from __future__ import annotations

import multiprocessing
import shlex
import shutil
import socketserver
import subprocess
import threading
import time
from datetime import timedelta

import pytest
import redis
from tests.contracts.idempotency import (
    ENDINGS,
    LONG,
    SHORT,
    IdempotencyContract,
    claim_at_once,
    fresh,
)
from tests.contracts.idempotency_model import compare_with_memory
from tools.tcp_proxy import unused_port

from angzarr.adapters.redis.idempotency import RedisIdempotencyStore, RedisOwnerLeases
from angzarr.adapters.redis.link import RedisClient
from angzarr.errors import ConfigurationError, StoreUnavailable
from angzarr.resilience.claim_memory import CompletedCache
from angzarr.resilience.idempotency import (
    AlreadyCompleted,
    Claim,
    Claimed,
    Complete,
    InProgress,
    Release,
)
from redis_servers import wait_until

PREFIX = f"angzarr-{fresh()}"
QUICK = timedelta(milliseconds=300)


@pytest.fixture
def client(redis_url):
    client = RedisClient(redis_url)
    yield client
    client.close()


@pytest.fixture
def direct(redis_url):
    with redis.Redis.from_url(redis_url, decode_responses=True) as direct:
        yield direct


@pytest.fixture
def through_proxy(proxy):
    client = RedisClient(proxy.url, timeout=QUICK)
    yield client
    client.close()


class OnRedis(IdempotencyContract):
    @pytest.fixture
    def let_pass(self):
        return lambda span: time.sleep(span.total_seconds() + 0.02)

    @pytest.fixture
    def leases(self, client):
        return RedisOwnerLeases(client, prefix=PREFIX)

    @pytest.fixture
    def make_store(self, client):
        return lambda life: RedisIdempotencyStore(client, prefix=PREFIX, life=life)


class TestRedisStore(OnRedis):
    def test_random_histories_match_the_memory_store(self, store, leases):
        compare_with_memory(store, leases, outbox=store.outbox)

    def test_claims_of_four_processes_have_one_winner(self, store, key, living):
        store.claim([Claim(key=fresh(), token="parent", owner=living)])
        counts = claim_in_processes(store, key, living)
        assert sum(counts) == 1
        assert len(counts) == 4
        assert store.claim([Claim(key=key, token="late", owner=living)]) == [InProgress()]

    def test_last_words_never_are_a_result_of_a_worker_that_knows_none(
        self, store, key, living, direct
    ):
        store.claim([Claim(key=key, token="killed", owner=living)])
        store.settle(key, "killed", Release(counted=True, last_words='["SystemExit: 3", "…"]'))
        store.claim([Claim(key=key, token="older", owner=living)])
        direct.hset(f"{PREFIX}:{key}", "status", "completed")  # all that an older release writes
        late = Claim(key=key, token="late", owner=living)
        assert store.claim([late]) == [AlreadyCompleted(result=None)]

    def test_every_key_of_a_record_or_lease_expires(self, store, leases, direct, living):
        for ending in [*ENDINGS, None]:
            key = fresh()
            for token in ("killed", "next"):
                store.claim([Claim(key=key, token=token, owner="dead")])
            if ending:
                store.settle(key, "next", ending)
        found = direct.scan_iter(f"{PREFIX}:*", count=1000)
        names = [name for name in found if name != f"{PREFIX}:facts"]  # a relay empties that
        assert len(names) >= len(ENDINGS) + 2
        assert [name for name in names if direct.pttl(name) <= 0] == []


class TestCompletedCacheOnRedis(OnRedis):
    @pytest.fixture
    def make_store(self, client):
        def make(life):
            # No longer than the shortest life of these tests, which let real time pass.
            store = RedisIdempotencyStore(client, prefix=PREFIX, life=life)
            return CompletedCache(store, life=SHORT)

        return make


def claim_in_processes(store, key, owner, processes=4, threads=50):
    """Return how many claims each forked process won; the store is used across the fork."""
    fork = multiprocessing.get_context("fork")
    answers = fork.SimpleQueue()

    def child():
        answers.put(sum(isinstance(a, Claimed) for a in claim_at_once(store, key, owner, threads)))

    children = [fork.Process(target=child) for _ in range(processes)]
    for process in children:
        process.start()
    for process in children:
        process.join(60)
    assert [process.exitcode for process in children] == [0] * processes
    return [answers.get() for _ in children]


# -- round trips -----------------------------------------------------------------------------------


class CountingClient(RedisClient):
    trips = 0

    def _call(self, send, *what):
        self.trips += 1
        return super()._call(send, *what)


def test_a_step_is_one_round_trip_and_a_conflict_at_most_three(redis_url):
    client = CountingClient(redis_url)
    store = RedisIdempotencyStore(client, prefix=PREFIX)
    leases = RedisOwnerLeases(client, prefix=PREFIX)
    owner = fresh()
    leases.renew(owner, LONG)
    store.claim([Claim(key=fresh(), token="t", owner=owner)])  # Redis knows the script now
    store.settle(fresh(), "t", Complete())
    store.owns(fresh(), "t", ["fact"])

    def trips(step):
        before = client.trips
        step()
        return client.trips - before

    first, second = ([Claim(key=f"{fresh()}-{n}", token="t", owner=owner)] for n in "12")
    many = [Claim(key=fresh(), token="t", owner="dead") for _ in range(50)]
    again = [Claim(key=claim.key, token="u", owner=owner) for claim in many]
    assert trips(lambda: store.claim(first)) == 1
    assert trips(lambda: store.claim(many)) == 1
    assert trips(lambda: store.owns(first[0].key, "t")) == 1
    assert trips(lambda: store.owns(first[0].key, "t", ["fact"])) == 1
    assert trips(lambda: store.claim([Claim(key=first[0].key, token="u", owner=owner)])) == 2
    assert trips(lambda: store.settle(first[0].key, "t", Complete(result="1"))) == 1
    assert trips(lambda: store.claim([Claim(key=first[0].key, token="u", owner=owner)])) == 1
    assert trips(lambda: store.claim(second)) == 1
    assert trips(lambda: store.claim(again)) == 3
    client.close()


def test_completed_cache_saves_the_round_trip(redis_url):
    client = CountingClient(redis_url)
    store = CompletedCache(RedisIdempotencyStore(client, prefix=PREFIX))
    claim = Claim(key=fresh(), token="t", owner="o")
    store.claim([claim])
    store.settle(claim.key, "t", Complete(result="1"))
    before = client.trips
    assert store.claim([claim]) == [AlreadyCompleted(result="1")]
    assert client.trips == before
    client.close()


# -- Redis Cluster ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster_node(tmp_path_factory):
    """The address of a Redis in cluster mode that holds all slots: it refuses mixed ones."""
    program = shutil.which("redis-server") or pytest.skip("needs redis-server on the PATH")
    port, folder = unused_port(), tmp_path_factory.mktemp("cluster")
    options = f"--port {port} --bind 127.0.0.1 --save '' --dir {folder} --cluster-enabled yes"
    with subprocess.Popen([program, *shlex.split(options)], stdout=subprocess.DEVNULL) as server:
        url = f"redis://127.0.0.1:{port}"
        try:
            with redis.Redis.from_url(url, decode_responses=True) as node:
                wait_until(node.ping, "the node")
                node.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
                wait_until(
                    lambda: "cluster_state:ok" in node.execute_command("CLUSTER", "INFO"),
                    "a cluster",
                )
            yield url
        finally:
            server.terminate()


def test_scripts_touch_one_slot_each(cluster_node):
    client = RedisClient(cluster_node)
    compare_with_memory(RedisIdempotencyStore(client), RedisOwnerLeases(client), histories=20)
    client.close()


# -- faults ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 3])
def test_scripts_are_taught_again_after_a_flush(client, direct, batch):
    store = RedisIdempotencyStore(client, prefix=PREFIX)
    direct.script_flush()
    claims = [Claim(key=fresh(), token="t", owner="o") for _ in range(batch)]
    assert store.claim(claims) == [Claimed(starts=1)] * batch
    direct.script_flush()
    assert store.settle(claims[0].key, "t", Complete())


def test_idle_connection_that_the_server_closed_is_replaced(client, direct):
    store = RedisIdempotencyStore(client, prefix=PREFIX)
    claim = Claim(key=fresh(), token="t", owner="o")
    store.claim([claim])
    number = client.execute("CLIENT", "ID")
    assert direct.client_kill_filter(_id=number) == 1
    assert store.claim([claim]) == [Claimed(starts=1)]


def test_lost_reply_is_asked_for_again_and_counts_no_start(through_proxy, proxy):
    store = RedisIdempotencyStore(through_proxy, prefix=PREFIX)
    store.claim([Claim(key=fresh(), token="t", owner="o")])
    claim = Claim(key=fresh(), token="t", owner="o")
    proxy.lose_replies(b"EVALSHA")
    assert store.claim([claim]) == [Claimed(starts=1)]
    proxy.lose_replies(b"EVALSHA")
    assert store.settle(claim.key, "t", Complete(result="1"))
    assert store.claim([claim]) == [AlreadyCompleted(result="1")]


@pytest.mark.parametrize("cut", [True, False], ids=["cut", "hung"])
def test_replies_that_stay_lost_are_unavailable_and_the_claim_can_be_sent_again(
    through_proxy, proxy, cut
):
    store = RedisIdempotencyStore(through_proxy, prefix=PREFIX)
    store.claim([Claim(key=fresh(), token="t", owner="o")])
    claim = Claim(key=fresh(), token="t", owner="o")
    proxy.lose_replies(b"EVALSHA", times=100, cut=cut)
    started = time.monotonic()
    with pytest.raises(StoreUnavailable):
        store.claim([claim])
    assert time.monotonic() - started < 20
    proxy.lose_replies(b"", times=0)
    assert store.claim([claim]) == [Claimed(starts=1)]
    assert store.settle(claim.key, "t", Release())


def test_server_that_is_down_is_unavailable_quickly_and_the_password_stays_secret():
    client = RedisClient(f"redis://user:s3cret@127.0.0.1:{unused_port()}/0")
    store = RedisIdempotencyStore(client)
    started = time.monotonic()
    with pytest.raises(StoreUnavailable, match=r"Redis at 127\.0\.0\.1:\d+/0") as caught:
        store.claim([Claim(key="k", token="t", owner="o")])
    assert time.monotonic() - started < 20
    assert "s3cret" not in f"{caught.value} {caught.value.__cause__!r} {caught.value.__cause__}"
    with pytest.raises(StoreUnavailable):
        store.owns("k", "t")
    with pytest.raises(StoreUnavailable):
        store.settle("k", "t", Complete())
    with pytest.raises(StoreUnavailable):
        RedisOwnerLeases(client).renew("o", LONG)


class ErrorReplies(socketserver.StreamRequestHandler):
    """Answers every script with the server's `error` and all else with OK."""

    def handle(self) -> None:
        while head := self.rfile.readline():
            words = []
            for _ in range(int(head[1:])):
                length = int(self.rfile.readline()[1:])
                words.append(self.rfile.read(length + 2)[:-2])
            reply = self.server.error if words[0].startswith(b"EVAL") else b"+OK"
            self.wfile.write(reply + b"\r\n")


@pytest.fixture
def answering():
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), ErrorReplies)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    client = RedisClient(f"redis://127.0.0.1:{server.server_address[1]}/0")

    def answering(error: bytes) -> RedisIdempotencyStore:
        server.error = error
        return RedisIdempotencyStore(client)

    yield answering
    client.close()
    server.shutdown()
    server.server_close()
    thread.join()


CLAIM = Claim(key="k", token="t", owner="o")


@pytest.mark.parametrize(
    "error",
    [
        b"-LOADING Redis is loading the dataset in memory",
        b"-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
        b"-READONLY You can't write against a read only replica.",
        b"-ERR Error running script (call to f_1): @user_script:7: -READONLY You can't write.",
        b"-OOM command not allowed when used memory > 'maxmemory'.",
        b"-MISCONF Redis is configured to save RDB snapshots, but cannot persist on disk.",
        b"-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        b"-CLUSTERDOWN The cluster is down",
        b"-TRYAGAIN Multiple keys request during rehashing of slot",
        b"-NOREPLICAS Not enough good replicas to write.",
        b"-NOAUTH Authentication required.",
        b"-NOPERM this user has no permissions to run the 'evalsha' command",
    ],
    ids=lambda error: error.split()[0].decode() if isinstance(error, bytes) else "",
)
@pytest.mark.parametrize("batch", [1, 2])
def test_server_that_cannot_serve_now_is_unavailable(answering, error, batch):
    with pytest.raises(StoreUnavailable):
        answering(error).claim([CLAIM] * batch)


def test_key_on_another_cluster_node_is_a_setting_to_mend(answering):
    with pytest.raises(ConfigurationError, match="cluster"):
        answering(b"-MOVED 3999 127.0.0.1:6381").claim([CLAIM])


def test_key_of_somebody_else_is_an_error_of_its_own(client, direct):
    name = fresh()
    direct.rpush(f"{PREFIX}:{name}", "not ours")
    store = RedisIdempotencyStore(client, prefix=PREFIX)
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        store.claim([Claim(key=name, token="t", owner="o")])
    direct.delete(f"{PREFIX}:{name}")
    assert store.claim([Claim(key=name, token="t", owner="o")]) == [Claimed(starts=1)]


@pytest.mark.parametrize("url", ["http://example.org", "not a url", "redis://host:port"])
def test_address_that_is_none_is_refused(url):
    with pytest.raises(ConfigurationError, match="redis://"):
        RedisClient(url)
