"""Redis servers of a test's own, for the tests of what goes over Redis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest
import redis

from redis_sentinel import PrivateSentinel
from redis_servers import PrivateRedis
from tcp_proxy import LossyProxy


@pytest.fixture
def make_redis(tmp_path_factory) -> Iterator[Callable[..., PrivateRedis]]:
    """Start servers with any options of `PrivateRedis`; they end with the test."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(
            PrivateRedis(tmp_path_factory.mktemp("redis"), **options)
        )


@pytest.fixture
def private_redis(make_redis) -> PrivateRedis:
    """An empty server that keeps its data when it is killed."""
    return make_redis(durable=True)


@pytest.fixture
def make_sentinel(tmp_path_factory) -> Iterator[Callable[..., PrivateSentinel]]:
    """Start a master, a replica and sentinels, with any options of `PrivateSentinel`."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(
            PrivateSentinel(tmp_path_factory.mktemp("sentinel"), **options)
        )


@pytest.fixture
def redis_broker(redis_url) -> str:
    """The address of this session's database, emptied."""
    with redis.Redis.from_url(redis_url) as client:
        client.flushdb()
    return redis_url


@pytest.fixture
def proxy(redis_url) -> Iterator[LossyProxy]:
    """A bad line to this session's server; its `url` leads over it."""
    address = urlsplit(redis_url)
    with LossyProxy(address.hostname, address.port) as proxy:
        proxy.url = address._replace(netloc=f"127.0.0.1:{proxy.port}").geturl()
        yield proxy


@pytest.fixture
def raw(redis_broker) -> Iterator[redis.Redis]:
    """What lies in `redis_broker`, without any transport."""
    with redis.Redis.from_url(redis_broker) as client:
        yield client
