"""Addresses of the real servers, each session on a part of them that nobody else uses.

An address in the environment (ANGZARR_TEST_…) wins; else the state file of tools/servers counts.
A missing server skips its tests on a laptop and fails them in CI. Clients are imported only by
the fixture that needs them.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote, urlsplit

import hypothesis
import pytest
from celery import _state

import endurance
import redis_databases
from addresses import CHECKOUT, MANAGEMENT, VARIABLES, addresses, servers_required

pytest.register_assert_rewrite("contracts")  # else a failed assertion there says nothing

#: Adapter folder → the fixture without which a test says nothing about that adapter.
ADAPTERS = {
    "redis": "redis_url",
    "sql": "postgresql_url",
    "rabbitmq": "amqp_url",
    "kafka": "kafka_brokers",
    "sqs": "sqs_endpoint",
    "s3": "s3_endpoint",
    "pubsub": "pubsub_emulator",
}

# Machines that run many workers are slow now and then; a time-out of its own ends a true hang.
# Nor does it matter how fast examples are drawn there.
hypothesis.settings.register_profile(
    "angzarr",
    deadline=None,
    max_examples=endurance.longer(50, 500),
    suppress_health_check=[
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.filter_too_much,
        hypothesis.HealthCheck.data_too_large,
    ],
)
hypothesis.settings.load_profile("angzarr")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Let no later collection of garbage look at the tests themselves."""
    gc.collect()
    gc.freeze()


# -- where the servers are -------------------------------------------------------------------


def _address(server: str) -> str:
    address = addresses().get(VARIABLES[server])
    return address or _do_without(
        f"no {server}: run `make servers-up`, or give its address in {VARIABLES[server]}"
    )


def _do_without(reason: str) -> NoReturn:
    if servers_required():
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """Where Chromium is."""
    path = os.environ.get("ANGZARR_TEST_CHROMIUM") or shutil.which("chromium")
    return path or _do_without(
        "no Chromium: run `make browser`, or name it in ANGZARR_TEST_CHROMIUM"
    )


def _tool(path: str, target: str) -> Path:
    found = CHECKOUT / path
    return found if found.exists() else _do_without(f"no {path}: run `{target}`")


@pytest.fixture(scope="session")
def release_python() -> Path:
    """The Python with what builds and checks a release."""
    return _tool("build/release/bin/python", "make dist")


@pytest.fixture(scope="session")
def docs_python() -> Path:
    """The Python with what builds the documentation site."""
    return _tool("build/docs/bin/python", "make docs")


@pytest.fixture(scope="session")
def uv() -> Path:
    """What makes an environment within a second."""
    return _tool("build/uv/bin/uv", "make build/uv/bin/uv")


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("server"):
        _address(marker.args[0])


@pytest.fixture(autouse=True)
def _log_level_of_each_test() -> Iterator[None]:
    """Give the root logger its level back: a worker in this process sets it for all that follow."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)


@pytest.fixture(autouse=True)
def _shared_tasks_of_each_test() -> Iterator[None]:
    """Forget the tasks that a test's apps share: Celery gives them to all apps that follow."""
    before = set(_state._on_app_finalizers)
    yield
    _state._on_app_finalizers.intersection_update(before)


@pytest.fixture(scope="session")
def session_name() -> str:
    """A name that no other test process uses, fit for databases and virtual hosts."""
    return f"angzarr-test-{os.getpid()}-{uuid.uuid4().hex[:6]}"


@pytest.fixture
def unique_name() -> str:
    """A fresh name for this test, fit for domains, queues, topics and keys."""
    return f"t{uuid.uuid4().hex[:10]}"


# -- the servers -----------------------------------------------------------------------------


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """An empty Redis database of this session's own; database 0 only says which are taken."""
    import redis

    base = urlsplit(_address("redis"))
    with redis.Redis.from_url(base._replace(path="/0").geturl()) as index:
        number = redis_databases.claim(index, os.getpid())
        if number is None:
            pytest.fail("all databases of the Redis server are taken")
        url = base._replace(path=f"/{number}").geturl()
        with redis.Redis.from_url(url) as database:
            database.flushdb()
            yield url
            database.flushdb()
        redis_databases.let_go(index, number, os.getpid())


@pytest.fixture(scope="session")
def postgresql_url(session_name: str) -> Iterator[str]:
    """An empty PostgreSQL database of this session's own, as an SQLAlchemy URL for psycopg 3."""
    with own_database(session_name) as url:
        yield url


@pytest.fixture
def ledger_url(session_name: str) -> Iterator[str]:
    """A PostgreSQL database of one test's own: it counts entries, and others leave some."""
    with own_database(f"{session_name}-{uuid.uuid4().hex[:8]}") as url:
        yield url


@contextmanager
def own_database(name: str, like: str = "template1") -> Iterator[str]:
    """Make a PostgreSQL database with what lies in *like*, which nobody is connected to."""
    import psycopg
    from psycopg import sql

    base = urlsplit(_address("postgresql"))
    database, template = sql.Identifier(name), sql.Identifier(like)
    server = base._replace(scheme="postgresql").geturl()
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(database, template))
    yield base._replace(scheme="postgresql+psycopg", path=f"/{name}").geturl()
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(database))


@pytest.fixture(scope="session")
def amqp_url(session_name: str) -> Iterator[str]:
    """A RabbitMQ virtual host of this session's own, deleted with its queues at the end."""
    base = urlsplit(_address("rabbitmq"))
    user = quote(base.username or "guest", safe="")
    manage("PUT", f"vhosts/{session_name}")
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    manage("PUT", f"permissions/{session_name}/{user}", rights)
    yield base._replace(path=f"/{session_name}").geturl()
    manage("DELETE", f"vhosts/{session_name}")


@pytest.fixture
def amqp_url_to_use_only(amqp_url: str, unique_name: str) -> Iterator[str]:
    """The same virtual host for a user who writes and reads, and may make nothing there."""
    base = urlsplit(amqp_url)
    manage("PUT", f"users/{unique_name}", {"password": unique_name, "tags": ""})
    rights = {"configure": "^$", "write": ".*", "read": ".*"}
    manage("PUT", f"permissions{base.path}/{unique_name}", rights)
    netloc = f"{unique_name}:{unique_name}@{base.hostname}:{base.port}"
    yield base._replace(netloc=netloc).geturl()
    manage("DELETE", f"users/{unique_name}")


def manage(method: str, path: str, body: dict[str, str] | None = None) -> None:
    import httpx

    address = addresses().get(MANAGEMENT)
    if not address:
        pytest.fail(f"give RabbitMQ's management address in {MANAGEMENT} as well", pytrace=False)
    with httpx.Client(trust_env=False, timeout=60) as client:
        client.request(method, f"{address.rstrip('/')}/api/{path}", json=body).raise_for_status()


@pytest.fixture(scope="session")
def kafka_brokers() -> str:
    """The bootstrap servers of a real broker, shared by all sessions: use unique topic names."""
    return _address("kafka")


@pytest.fixture(scope="session")
def sqs_endpoint() -> Iterator[str]:
    """LocalStack's address; the credentials set meanwhile name an AWS account of our own.

    botocore reads its data once: for each client anew it would be most of what these tests compute.
    """
    from botocore.loaders import JSONFileLoader

    account = {
        "AWS_ACCESS_KEY_ID": f"{os.getpid():012d}",  # LocalStack reads twelve digits as an account
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    with pytest.MonkeyPatch.context() as patch:
        for key, value in account.items():
            patch.setenv(key, value)
        patch.setattr(JSONFileLoader, "load_file", staticmethod(cache(JSONFileLoader().load_file)))
        yield _address("localstack")


@pytest.fixture
def pubsub_emulator(monkeypatch: pytest.MonkeyPatch) -> str:
    """The host and port of a Pub/Sub emulator, which clients made meanwhile connect to.

    Shared by all sessions: use unique projects.
    """
    address = _address("pubsub")
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", address)
    return address


@pytest.fixture(scope="session")
def s3_endpoint(sqs_endpoint: str) -> str:
    """LocalStack's address again: it serves S3 beside SQS, for the same account."""
    return sqs_endpoint


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder with real event payloads: $ANGZARR_TEST_DATA, else beside the checkout."""
    folder = Path(os.environ.get("ANGZARR_TEST_DATA") or CHECKOUT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no real payloads in {folder}: name their folder in ANGZARR_TEST_DATA")
    return folder


# -- what make soak does longer ---------------------------------------------------------------


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        test = getattr(item, "obj", None)
        if getattr(test, "is_hypothesis_test", False) or "random_histories" in item.name:
            item.add_marker("longer")


# -- no adapter goes untested ----------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--every-adapter",
        action="store_true",
        help="count the tests passed on real servers, by adapter; in CI none may have zero",
    )


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # in xdist, reports come together in the controller
        config.pluginmanager.register(AdapterCount(), "adapter-count")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    used = set(getattr(getattr(item, "_request", None), "fixturenames", ()))
    report.user_properties.append(("fixtures", sorted(used & set(ADAPTERS.values()))))
    return report


class AdapterCount:
    """Counts the tests under tests/adapters that passed on each adapter's real server."""

    def __init__(self) -> None:
        self.passed: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed and "adapters/" in report.nodeid:
            self.passed.update(dict(report.user_properties).get("fixtures", ()))

    def untested(self) -> list[str]:
        return [adapter for adapter, fixture in ADAPTERS.items() if not self.passed[fixture]]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.config.getoption("--every-adapter") and servers_required() and self.untested():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        if not config.getoption("--every-adapter"):
            return
        counts = ", ".join(f"{name} {self.passed[fixture]}" for name, fixture in ADAPTERS.items())
        terminalreporter.write_line(f"tests passed on real servers, by adapter: {counts}")
        if self.untested():
            names = ", ".join(self.untested())
            terminalreporter.write_line(f"not tested on a real server: {names}", red=True)


# -- what was measured -----------------------------------------------------------------------


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Callable[[dict[str, Any]], None]:
    """Keep what a test measured in build/reports, under its name, for benchmarks/ to read."""

    def keep(measured: dict[str, Any]) -> None:
        reports = CHECKOUT / "build" / "reports"
        reports.mkdir(parents=True, exist_ok=True)
        (reports / f"{request.node.name}.json").write_text(json.dumps(measured, indent=2))

    return keep
