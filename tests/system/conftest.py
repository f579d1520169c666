"""Real worker processes over real servers, and the journal that proves what ran."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import uuid
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Protocol, runtime_checkable
from urllib.parse import urlsplit

import pytest

import journal
import warm_process
from polling import wait_until
from tcp_proxy import LossyProxy

HERE = Path(__file__).parent
#: Where workers find the app, and the sources that this process was told to test.
CHECKOUT = HERE.parents[1]
PATH = os.pathsep.join(
    str(one)
    for one in (HERE, CHECKOUT / "tests", CHECKOUT / "tools", os.environ.get("PYTHONPATH"))
    if one
)

#: Characters of its workers' log that a failed test shows.
LAST_WORDS = 32_000


@pytest.fixture(autouse=True)
def _letters_of_no_domain(monkeypatch):
    """Let all sites have one queue of letters for which nothing names a domain."""
    monkeypatch.setenv("ANGZARR_DLQ__DEFAULT_DOMAIN", "unknown")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the one long test of the last module: at the end it would run alone."""
    items.sort(key=lambda item: item.path.name != "test_switches.py")


@runtime_checkable
class Tells(Protocol):
    """A fixture that has something to show when its test fails."""

    def text(self) -> str: ...


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Show what the workers of a failed test said last: where it failed, nobody can look."""
    report = yield
    if call.when == "call" and report.failed:
        for told in getattr(item, "funcargs", {}).values():
            if isinstance(told, Tells):
                report.sections.append(("The workers' last words", told.text()[-LAST_WORDS:]))
    return report


class Site:
    """One app in this process (to publish) and its workers in others."""

    #: The module that has the app.
    name = "road_app"

    def __init__(self, folder: Path, environment: dict[str, str], monkeypatch):
        self.journal = folder / "journal"
        self.journal.touch()
        self.log = folder / "worker.log"
        # A prefix of its own: breakers are shared by all apps of one prefix.
        prefix = environment.get("ROAD_PREFIX", "road")
        self.environment = {
            "ANGZARR_PREFIX": prefix, **environment, "ROAD_JOURNAL": str(self.journal)
        }  # fmt: skip
        for name, value in self.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.syspath_prepend(str(HERE))
        self._forget_modules()
        self.module = importlib.import_module(self.name)
        self.app = self.module.app

    def close(self):
        self.app.close()
        self._forget_modules()

    def _forget_modules(self):
        """Let the next site read its own environment: its module, and the one many build on."""
        for name in (self.name, "road_app"):
            sys.modules.pop(name, None)

    @contextmanager
    def worker(self, *options: str, pool: str = "prefork", **environment: str):
        """A worker that is ready."""
        said = len(self.text())
        with self.begun_worker(*options, pool=pool, **environment) as process:
            wait_until(lambda: self._ready(process, said), "the worker to be ready")
            yield process

    @contextmanager
    def begun_worker(self, *options: str, pool: str = "prefork", **environment: str):
        """A worker that is not waited for: it may die before it is ready."""
        process = warm_process.begin(
            [
                "celery", "-A", self.name, "worker", "--pool", pool, "--concurrency", "2",
                "--loglevel", "INFO", "--without-mingle", "--without-gossip",
                "--hostname", f"w{uuid.uuid4().hex[:8]}@%h", *options,  # two of one name cannot be
            ],
            folder=HERE,
            environment={**os.environ, **self.environment, **environment, "PYTHONPATH": PATH},
            log=self.log,
        )  # fmt: skip
        try:
            yield process
        finally:
            stop(process)

    def _ready(self, process, said):
        """Look for its word in what was *said* since it began."""
        if process.poll() is not None:
            pytest.fail(f"the worker ended with {process.returncode}: {self.text()[-3000:]}")
        return " ready." in self.text()[said:]

    def text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def ran(self, what: str) -> list[dict]:
        return [line for line in journal.records(self.journal) if line["what"] == what]

    def wait_ran(self, what: str, times: int = 1) -> list[dict]:
        wait_until(lambda: len(self.ran(what)) >= times, f"{what} to run {times} times")
        return self.ran(what)

    def letters(self, domain: str, number: int = 1):
        queue = self.app.ops.open_dead_letter_queue()
        try:
            found = []

            def more():
                receipts = queue.receive([domain], limit=10, wait=timedelta(seconds=1))
                queue.done(receipts)
                found.extend(receipt.letter for receipt in receipts)
                return len(found) >= number

            wait_until(more, f"{number} letters of {domain}")
            return found
        finally:
            queue.close()

    def forget_letters(self, *domains: str) -> None:
        """Take what earlier tests left: the queues of letters are theirs too."""
        queue = self.app.ops.open_dead_letter_queue()
        try:
            while receipts := queue.receive(domains, limit=100, wait=timedelta(0)):
                queue.done(receipts)
        finally:
            queue.close()


def stop(process):
    """End a worker: asked first, then killed with its children."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)


@pytest.fixture
def site(request, tmp_path, monkeypatch, unique_name):
    """A site on the broker named by the test's parameter: redis, amqp, classic or sqs."""
    broker = getattr(request, "param", "redis")
    made = request.getfixturevalue(f"{broker}_site_environment")
    site = Site(tmp_path, {"ROAD_PREFIX": unique_name, **made}, monkeypatch)
    site.forget_letters("thing", "unknown")
    yield site
    site.close()


@pytest.fixture
def make_site(tmp_path, monkeypatch, unique_name, redis_url, amqp_url):
    """Make sites of servers that a test names: on RabbitMQ with a Redis store unless it does."""
    with ExitStack() as stack:

        def make(*, broker=amqp_url, store=redis_url, letters=amqp_url, make=Site, **environment):
            everything = {
                "ROAD_PREFIX": unique_name,
                "ROAD_BROKER": broker,
                "ANGZARR_STORE": store,
                "ROAD_DLQ": json.dumps({"backend": "amqp", "amqp_url": letters}),
                "ROAD_ASYNC": "0",
                **environment,
            }
            site = make(tmp_path, everything, monkeypatch)
            stack.callback(site.close)
            return site

        yield make


@pytest.fixture
def cable():
    """Make a proxy before the server at a URL; returns (proxy, url through it)."""
    with ExitStack() as stack:

        def make(url: str):
            parts = urlsplit(url)
            proxy = stack.enter_context(LossyProxy(parts.hostname, parts.port))
            login = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
            return proxy, parts._replace(netloc=f"{login}127.0.0.1:{proxy.port}").geturl()

        yield make


@pytest.fixture
def redis_site_environment(redis_url, amqp_url):
    return {
        "ROAD_BROKER": redis_url,
        "ROAD_BACKEND": redis_url,
        "ANGZARR_STORE": redis_url,
        "ROAD_DLQ": json.dumps({"backend": "amqp", "amqp_url": amqp_url}),
    }


@pytest.fixture
def amqp_site_environment(redis_url, amqp_url):
    return {
        "ROAD_BROKER": amqp_url,
        "ROAD_BACKEND": redis_url,
        "ANGZARR_STORE": redis_url,
        "ROAD_DLQ": json.dumps({"backend": "amqp"}),
    }


@pytest.fixture
def classic_site_environment(amqp_site_environment):
    """RabbitMQ with classic queues behind a direct exchange, as Celery has them by default."""
    return {**amqp_site_environment, "ROAD_CLASSIC": "1"}


@pytest.fixture
def sqs_site_environment(redis_url, sqs_endpoint):
    address = sqs_endpoint.removeprefix("http://")
    return {
        "ROAD_BROKER": f"sqs://{os.environ['AWS_ACCESS_KEY_ID']}:test@{address}",
        "ROAD_BACKEND": redis_url,
        "ANGZARR_STORE": redis_url,
        "ROAD_DLQ": json.dumps({"backend": "sqs", "aws_endpoint_url": sqs_endpoint}),
    }
