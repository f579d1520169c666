"""Servers: the addresses of the running ones, and a part of each that nobody else uses.

An address in the environment (ANGZARR_TEST_…) wins; else the state file of tools/servers counts.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from harness.book import CHECKOUT
from harness.figure import NotMeasured

STATE = CHECKOUT / "build" / "servers" / "state.json"
REDIS = "ANGZARR_TEST_REDIS_URL"
AMQP = "ANGZARR_TEST_AMQP_URL"
MANAGEMENT = "ANGZARR_TEST_AMQP_MANAGEMENT_URL"
POSTGRESQL = "ANGZARR_TEST_POSTGRESQL_URL"
SQS = "ANGZARR_TEST_SQS_ENDPOINT"
KAFKA = "ANGZARR_TEST_KAFKA_BROKERS"
PUBSUB = "ANGZARR_TEST_PUBSUB_EMULATOR"


class MissingServer(NotMeasured):
    """A server that a figure needs has no address."""

    def __init__(self, variable: str) -> None:
        super().__init__(f"no server: run `make servers-up`, or give its address in {variable}")


class Store(NamedTuple):
    """A Redis and the prefix of all our keys in it."""

    url: str
    prefix: str


def address(variable: str) -> str:
    """Return a server's address; raises MissingServer."""
    if given := os.environ.get(variable):
        return given
    running = json.loads(STATE.read_text()) if STATE.exists() else {}
    for server in running.values():
        if written := server["addresses"].get(variable):
            return str(written)
    raise MissingServer(variable)


@contextmanager
def redis_store() -> Iterator[Store]:
    """Lend a prefix in the running Redis; its keys are deleted at the end."""
    import redis

    store = Store(address(REDIS), _name())
    with redis.Redis.from_url(store.url) as client:
        try:
            yield store
        finally:
            for keys in _batches(client.scan_iter(f"{store.prefix}:*", count=1000)):
                client.unlink(*keys)


@contextmanager
def virtual_host() -> Iterator[str]:
    """Lend the URL of a fresh virtual host of RabbitMQ, deleted with its queues at the end."""
    base, name = urlsplit(address(AMQP)), _name()
    user = quote(base.username or "guest", safe="")
    manage("PUT", f"vhosts/{name}")
    try:
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        manage("PUT", f"permissions/{name}/{user}", everything)
        yield base._replace(path=f"/{name}").geturl()
    finally:
        manage("DELETE", f"vhosts/{name}")


@contextmanager
def database() -> Iterator[str]:
    """Lend the URL of a fresh database of PostgreSQL, dropped at the end."""
    import psycopg

    base, name = urlsplit(address(POSTGRESQL)), _name()
    server = base._replace(scheme="postgresql").geturl()
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    try:
        yield base._replace(path=f"/{name}").geturl()
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def aws_account() -> dict[str, str]:
    """Return the environment of an account of LocalStack's that nobody else uses."""
    return {
        "AWS_ACCESS_KEY_ID": f"{uuid.uuid4().int % 10**12:012d}",  # twelve digits are an account
        "AWS_SECRET_ACCESS_KEY": "bench",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def manage(method: str, path: str, body: dict[str, str] | None = None) -> Any:
    """Call RabbitMQ's management API and return its JSON, if any."""
    import httpx

    url = f"{address(MANAGEMENT).rstrip('/')}/api/{path}"
    with httpx.Client(trust_env=False, timeout=10) as client:
        answer = client.request(method, url, json=body).raise_for_status()
    return answer.json() if answer.content else None


def redis_version() -> str:
    """Return the version of the running Redis."""
    import redis

    with redis.Redis.from_url(address(REDIS)) as client:
        return str(client.info("server")["redis_version"])


def rabbitmq_version() -> str:
    """Return the version of the running RabbitMQ."""
    return str(manage("GET", "overview")["rabbitmq_version"])


def _name() -> str:
    return f"angzarr-bench-{os.getpid()}-{uuid.uuid4().hex[:6]}"


def _batches(keys: Iterator[Any], size: int = 1000) -> Iterator[list[Any]]:
    batch: list[Any] = []
    for key in keys:
        batch.append(key)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
