"""What the doctor finds of a shop on Celery, and of the same shop on Angzarr, while workers run.

Both are on the same servers: a Redis that keeps what it is given, and a RabbitMQ. The page
`docs/reference/doctor.md` shows the result, and is held to it.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest

import warm_process
from doctoring import virtual_host
from polling import wait_until
from redis_servers import PrivateRedis
from system.conftest import PATH, stop

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "reference" / "doctor.md"
SIDES = ("stock_shop", "our_shop")
BROKERS = ("redis", "rabbitmq")
KEPT = {"maxmemory": "200mb", "maxmemory-policy": "noeviction", "appendfsync": "everysec"}


@pytest.fixture
def environment(request, tmp_path, amqp_url, unique_name):
    with (
        PrivateRedis(tmp_path / "redis", durable=True, options=KEPT) as server,
        virtual_host(amqp_url, unique_name) as host,
    ):
        known = {name: value for name, value in os.environ.items() if "ANGZARR_" not in name}
        yield {
            **known,
            "SHOP_BROKER": server.url if request.param == "redis" else host,
            "SHOP_BACKEND": server.url,
            "SHOP_LETTERS": host,
            "ANGZARR_RELEASE": "v1",
            "PYTHONPATH": PATH,
        }


@contextmanager
def worker(name, environment, log):
    options = ["--concurrency", "1", "--hostname", f"w{uuid.uuid4().hex[:8]}@%h", "-l", "INFO"]
    log.touch()
    command = ["celery", "-A", name, "worker", *options]
    process = warm_process.begin(command, folder=HERE, environment=environment, log=log)
    try:
        wait_until(lambda: " ready." in log.read_text(errors="replace"), log.read_text())
        yield
    finally:
        stop(process)


def doctor(name, environment, *options):
    command = ["angzarr", "-A", name, "doctor", "--timeout", "20s", *options]
    return warm_process.run(command, folder=HERE, environment=environment)


def examined(name, environment):
    done = doctor(name, environment, "--format", "json", "--fail-on", "never")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["findings"]
    return {one["id"]: one["severity"] for one in found if one["known"]}


def table():
    """Return the findings that the page shows, by side and broker."""
    rows = re.findall(r"^\| `([a-z-]+)` \|((?: [a-z-]+ \|){4})$", PAGE.read_text(), re.MULTILINE)
    columns = [(side, broker) for side in SIDES for broker in BROKERS]
    shown = {column: {} for column in columns}
    for check, cells in rows:
        for column, cell in zip(columns, cells.strip(" |").split(" | "), strict=True):
            if cell != "-":
                shown[column][check] = cell
    return shown


@pytest.mark.parametrize("environment", BROKERS, indirect=True)
@pytest.mark.parametrize("side", SIDES)
def test_the_page_shows_what_is_found(side, environment, request, tmp_path, record):
    broker = request.node.callspec.params["environment"]
    with worker(side, environment, tmp_path / "worker.log"):
        found = examined(side, environment)
    assert found == table()[side, broker]
    record(dict(Counter(found.values())))


@pytest.mark.parametrize("environment", BROKERS, indirect=True)
def test_ours_has_nothing_critical_and_passes_as_an_init_container(environment, tmp_path):
    before = doctor("our_shop", environment, "--fail-on", "critical")
    assert before.returncode == 0, before.stdout
    with worker("our_shop", environment, tmp_path / "worker.log"):
        assert doctor("our_shop", environment).returncode == 0
        found = examined("our_shop", environment)
    assert not {"critical", "error"} & set(found.values()), found


@pytest.mark.parametrize("environment", BROKERS, indirect=True)
def test_stock_has_many_critical_findings_on_the_same_servers(environment):
    found = examined("stock_shop", environment)
    assert list(found.values()).count("critical") >= 6
    assert doctor("stock_shop", environment, "--fail-on", "critical").returncode == 1
