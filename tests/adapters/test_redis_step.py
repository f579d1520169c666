"""The step script and the session around it, on a real Redis: what is atomic, and told once."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
import redis

from angzarr.adapters.redis.fetcher import keys_of
from angzarr.adapters.redis.idempotency import RedisIdempotencyStore
from angzarr.adapters.redis.link import Link, RedisClient
from angzarr.adapters.redis.session import Keys, Session, split_held
from angzarr.adapters.redis.step import STEP
from angzarr.resilience.idempotency import Claim, Claimed, Complete

LEASE = timedelta(seconds=60)


@pytest.fixture
def client(redis_url):
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        yield client


@pytest.fixture
def link(redis_url):
    from redis.connection import ConnectionPool

    pool = ConnectionPool.from_url(redis_url, protocol=2)
    link = Link(lambda: pool.connection_class(**pool.connection_kwargs))
    yield link
    link.close()


@pytest.fixture
def session(link, unique_name):
    keys = Keys.new(f"{unique_name}:owner:me", f"{unique_name}:unacked:")
    session = Session(link, keys, LEASE, shared=False)
    session.renew()
    yield session
    session.end()


@pytest.fixture
def queue(unique_name):
    return f"{unique_name}:q"


def message(body):
    return json.dumps({"body": body, "headers": {}, "properties": {"delivery_info": {}}})


@pytest.fixture
def step(link, session):
    """Take a step of the session: most, lists, token, order, and what is let go."""

    def step(most, *lists, token="t:1", order="first", width=1, let_go=()):
        keys = (*keys_of(session), *lists)
        flat = [part for tag, *ending in let_go for part in (tag, len(ending), *ending)]
        state, missing, fenced, kept, _, *found = link.run(
            STEP, keys, most, token, width, order, session.keys.session, *flat
        )
        return state.decode(), missing, fenced, kept, found

    return step


def bodies(found):
    return [json.loads(raw)["body"] for raw in found[1::2]]


def test_a_fetched_message_is_ours_at_once_and_remembers_its_list(client, session, step, queue):
    client.lpush(queue, message("a"), message("b"))
    state, *_, found = step(5, queue)
    assert (state, bodies(found)) == ("empty", ["a", "b"])
    held = {
        tag: split_held(value.encode())
        for tag, value in client.hgetall(session.keys.unacked).items()
    }
    assert held == {
        "t:1:1": (queue.encode(), message("a").encode()),
        "t:1:2": (queue.encode(), message("b").encode()),
    }
    assert client.llen(queue) == 0


def test_a_step_sent_twice_fetches_once(client, step, queue):
    client.lpush(queue, *(message(n) for n in range(4)))
    first, second = step(2, queue), step(2, queue)
    assert bodies(first[-1]) == bodies(second[-1]) == [0, 1]
    assert bodies(step(2, queue, token="t:2")[-1]) == [2, 3]


def test_a_key_that_is_no_list_is_told_and_passed_over(client, link, session, queue):
    client.lpush(queue, message("a"))
    client.set(f"{queue}-odd", "not a list")
    keys = (*keys_of(session), f"{queue}-odd", queue)
    reply = link.run(STEP, keys, 5, "t:1", 2, "fair", session.keys.session)
    assert (reply[0], reply[4], reply[5:]) == (
        b"empty", [f"{queue}-odd".encode()], [2, message("a").encode()],
    )  # fmt: skip
    client.delete(f"{queue}-odd")


def test_a_session_that_nobody_would_find_fetches_nothing(client, session, step, queue):
    client.lpush(queue, message("a"))
    client.zrem(session.keys.sessions, session.keys.session)
    assert step(1, queue)[0] == "no lease"
    assert client.llen(queue) == 1


def test_without_a_lease_nothing_is_fetched_and_everything_let_go(client, session, step, queue):
    client.lpush(queue, message("a"), message("b"))
    step(1, queue)
    client.delete(session.keys.lease)
    state, missing, *_ = step(1, queue, token="t:2", let_go=[("t:1:1",)])
    assert (state, missing) == ("no lease", [])
    assert client.llen(queue) == 1
    session.renew()
    assert bodies(step(1, queue, token="t:2")[-1]) == ["b"]


def test_lists_of_one_priority_take_turns_and_a_higher_one_comes_first(client, step, queue):
    a, b, later = f"{queue}-a", f"{queue}-b", f"{queue}-later"
    client.lpush(a, *(message(f"a{n}") for n in range(3)))
    client.lpush(b, *(message(f"b{n}") for n in range(2)))
    client.lpush(later, message("later"))
    lists = (a, b, later, f"{queue}-none")
    state, *_, found = step(4, *lists, order="fair", width=2)
    assert (state, bodies(found)) == ("full", ["a0", "b0", "a1", "b1"])
    state, *_, found = step(4, *lists, order="fair", width=2, token="t:2")
    assert (state, bodies(found)) == ("empty", ["a2", "later"])


def test_one_list_after_the_other_where_turns_are_not_wanted(client, step, queue):
    a, b = f"{queue}-a", f"{queue}-b"
    client.lpush(a, message("a0"), message("a1"))
    client.lpush(b, message("b0"))
    assert bodies(step(9, a, b, width=2)[-1]) == ["a0", "a1", "b0"]


def test_letting_go_of_what_is_not_there_is_told(client, step, queue):
    client.lpush(queue, message("a"))
    step(1, queue)
    state, missing, *_ = step(0, let_go=[("t:1:1",), ("t:9:9",)])
    assert (state, missing) == ("idle", [b"t:9:9"])


# -- claims that end with the acknowledgement ------------------------------------------------------


@pytest.fixture
def store(redis_url, unique_name):
    client = RedisClient(redis_url)
    yield RedisIdempotencyStore(client, prefix=unique_name, one=True)
    client.close()


def claim(key, token, owner="me"):
    return Claim(key=key, token=token, owner=owner, counted=False)


def test_a_claim_ends_before_its_message_goes(client, step, store, queue, unique_name):
    client.lpush(queue, message("a"))
    step(1, queue)
    store.claim([claim("k", "mine")])
    record, args = store.ending_args("k", "mine", Complete(result="7"))
    assert step(0, let_go=[("t:1:1", record, *args)])[1:4] == ([], [], [])
    assert client.hget(f"{unique_name}:k", "status") == "completed"
    assert client.hget(f"{unique_name}:k", "result") == "7"


def test_a_claim_that_another_took_over_is_told_and_left_alone(client, step, store, queue):
    client.lpush(queue, message("a"))
    step(1, queue)
    store.claim([claim("k", "mine", owner="dead")])
    assert store.claim([claim("k", "theirs", owner="other")]) == [Claimed(starts=0)]
    record, args = store.ending_args("k", "mine", Complete())
    _, missing, fenced, kept, _ = step(0, let_go=[("t:1:1", record, *args)])
    assert (missing, fenced, kept) == ([], [b"t:1:1"], [])
    assert store.owns("k", "theirs")


def test_a_claim_that_cannot_be_ended_keeps_its_message(client, session, step, store, queue):
    client.lpush(queue, message("a"), message("b"))
    step(2, queue)
    record, args = store.ending_args("odd", "mine", Complete())
    client.set(record, "not a record")
    _, missing, fenced, kept, _ = step(0, let_go=[("t:1:1", record, *args), ("t:1:2",)])
    assert (missing, fenced, kept) == ([], [], [b"t:1:1"])
    assert client.hkeys(session.keys.unacked) == ["t:1:1"]
    client.delete(record)


def test_many_claims_of_one_server_are_one_script(store, monkeypatch):
    calls = []
    real = store._client.run
    monkeypatch.setattr(store._client, "run", lambda *given: (calls.append(given), real(*given))[1])
    answers = store.claim([claim("k1", "a"), claim("k2", "b"), claim("k1", "a")])
    assert answers == [Claimed(starts=0)] * 3
    assert len(calls) == 1


# -- giving back -----------------------------------------------------------------------------------


def test_what_is_given_back_is_fetched_next_in_its_old_order(client, session, step, queue):
    client.lpush(queue, *(message(n) for n in range(120)))
    step(60, queue)
    step(40, queue, token="t:2")
    tags = client.hkeys(session.keys.unacked)
    assert session.give_back(tags) == 100
    assert bodies(step(120, queue, token="t:3")[-1]) == list(range(120))


def test_what_is_given_back_last_comes_after_all_others(client, session, step, queue):
    client.lpush(queue, *(message(n) for n in range(4)))
    step(2, queue)
    session.give_back(["t:1:1", "t:1:2"], last=True)
    found = step(4, queue, token="t:2")[-1]
    assert bodies(found) == [2, 3, 0, 1]
    flags = [json.loads(raw)["properties"]["delivery_info"] for raw in found[1::2]]
    assert flags == [{}, {}, {"redelivered": True}, {"redelivered": True}]


def test_giving_back_twice_gives_back_once(client, session, step, queue):
    client.lpush(queue, message("a"))
    step(1, queue)
    assert [session.give_back(["t:1:1"]), session.give_back(["t:1:1"])] == [1, 0]
    assert client.llen(queue) == 1


def test_the_living_are_not_buried_and_the_dead_are_forgotten(client, link, session, step, queue):
    client.lpush(queue, message("a"))
    step(1, queue)
    judge = Session(link, Keys.new("judge:owner", session.keys.unacked_prefix), LEASE, shared=False)
    client.zadd(session.keys.sessions, {session.keys.session: 1})  # overdue, says the index
    assert judge.judge() == 0
    client.zadd(session.keys.sessions, {session.keys.session: 1})
    client.delete(session.keys.lease)
    assert judge.judge() == 1
    assert client.zscore(session.keys.sessions, session.keys.session) is None
    assert (client.llen(queue), client.exists(session.keys.unacked)) == (1, 0)
