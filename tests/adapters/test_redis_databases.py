"""No two test sessions ever share a database, whoever died before them."""

from __future__ import annotations

import os

import pytest
import redis

import redis_databases

#: No process has this number: Linux has 2^22 at most.
DEAD = 2**22 + 1


@pytest.fixture
def index(redis_url):
    """An index of its own, in this session's database."""
    with redis.Redis.from_url(redis_url) as client:
        yield client
        client.delete(*(redis_databases._key(number) for number in range(1, 4)))


class Watched:
    """A client beside which somebody else does something just after its first look."""

    def __init__(self, index, meanwhile):
        self._index, self._meanwhile = index, meanwhile

    def __getattr__(self, name):
        return getattr(self._index, name)

    def get(self, key):
        seen = self._index.get(key)
        meanwhile, self._meanwhile = self._meanwhile, lambda: None
        meanwhile()
        return seen


@pytest.mark.parametrize("holder", [DEAD, None])
def test_two_sessions_that_find_a_database_free_at_once_get_two(index, holder):
    if holder:
        index.set(redis_databases._key(1), holder)
    got = []
    ours = Watched(index, lambda: got.append(redis_databases.claim(index, os.getppid())))
    got.append(redis_databases.claim(ours, os.getpid()))
    assert got == [1, 2]
    assert int(index.get(redis_databases._key(1))) == os.getppid()


def test_a_dead_sessions_database_is_taken_and_a_living_ones_is_not(index):
    index.set(redis_databases._key(1), os.getpid())
    index.set(redis_databases._key(2), DEAD)
    assert redis_databases.claim(index, os.getpid()) == 2
    assert index.ttl(redis_databases._key(2)) > 0


def test_a_claim_that_is_anothers_by_now_is_not_ended(index):
    index.set(redis_databases._key(1), os.getppid())
    redis_databases.let_go(index, 1, os.getpid())
    assert index.get(redis_databases._key(1))
    redis_databases.let_go(index, 1, os.getppid())
    assert not index.get(redis_databases._key(1))
