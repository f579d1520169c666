"""`angzarr dlq analyze --processes`: analysis workers that share queues, under one supervisor."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import urllib.request
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import count, islice

import pytest
from tests.contracts.ledger import letter_of

import warm_process
from endurance import soak
from polling import wait_until
from redis_servers import free_port
from system.conftest import PATH, stop

_READS = re.compile(r"analysis@\S+:(\d+) reads ")


class Analysts:
    """Two analysis workers at work."""

    def __init__(self, site, folder, queue, domain, port) -> None:
        self._folder = folder
        self._queue = queue
        self._domain = domain
        self._port = port
        self.environment = {
            **os.environ, **site.environment, "PYTHONPATH": PATH,
            "ANGZARR_LEDGER": f"sqlite:///{folder}/ledger.db",
            "ANGZARR_HEALTH__PORT": str(port), "ANGZARR_HEALTH__HOST": "127.0.0.1",
        }  # fmt: skip

    def text(self) -> str:
        log = self._folder / "analysts.log"
        return log.read_text() if log.exists() else ""

    def begun(self) -> list[int]:
        """Return the processes that began, in order."""
        return [int(pid) for pid in _READS.findall(self.text())]

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self._port}/readyz", timeout=60
            ) as told:
                return told.status == 200
        except OSError:
            return False

    def put(self, *numbers: int) -> None:
        letters = [
            replace(letter, event=replace(letter.event, root=letter.event.id))  # of all partitions
            for number in numbers
            for letter in [letter_of(f"e{number}", domain=self._domain)]
        ]
        assert not any(self._queue.put(letters))

    def filed(self) -> int:
        told = ["angzarr", "-A", "road_app", "dlq", "stats", "--json"]
        said = warm_process.run(told, environment=self.environment, check=True)
        return sum(json.loads(said.stdout)["by_status"].values())

    def who_filed(self) -> set[int]:
        """Return the processes that have filed a letter."""
        with closing(sqlite3.connect(f"file:{self._folder}/ledger.db?mode=ro", uri=True)) as ledger:
            said = ledger.execute("SELECT DISTINCT who FROM ledger_history").fetchall()
        return {int(who.rpartition(":")[2]) for (who,) in said if who.startswith("analysis@")}

    @contextmanager
    def run(self):
        command = ["angzarr", "-A", "road_app", "dlq", "analyze", "--processes", "2"]
        process = warm_process.begin(
            command,
            folder=self._folder,
            environment=self.environment,
            log=self._folder / "analysts.log",
        )
        try:
            wait_until(lambda: process.poll() is not None or len(self.begun()) == 2, "two of them")
            assert process.poll() is None, self.text()[-3000:]
            yield process
        finally:
            stop(process)


@pytest.fixture(params=["amqp"])
def analysts(request, make_site, tmp_path, unique_name):
    letters = {"domains": [unique_name], "backend": request.param, **backend(request, unique_name)}
    site = make_site(ROAD_DLQ=json.dumps(letters))
    with closing(site.app.ops.open_dead_letter_queue()) as queue:
        yield Analysts(site, tmp_path, queue, unique_name, free_port())


def backend(request, name: str) -> dict[str, str]:
    """Return the settings of a place for letters, which are given back soon after a death."""
    match request.param:
        case "amqp":
            return {"amqp_url": request.getfixturevalue("amqp_url")}
        case "kafka":
            return {"kafka_brokers": request.getfixturevalue("kafka_brokers"), "kafka_group": name}
        case "sqs":
            endpoint = request.getfixturevalue("sqs_endpoint")
            return {"aws_endpoint_url": endpoint, "aws_visibility": "10"}
    request.getfixturevalue("pubsub_emulator")
    return {"pubsub_project": name}


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_one_that_is_killed_is_replaced_and_all_end_with_their_supervisor(analysts):
    with analysts.run() as process:
        wait_until(analysts.ready, "ready")
        analysts.put(*range(30))
        wait_until(lambda: analysts.filed() == 30, "thirty filed")
        os.kill(analysts.begun()[0], signal.SIGKILL)
        wait_until(lambda: len(analysts.begun()) == 3, "another one in its place")
        analysts.put(*range(20, 60))
        wait_until(lambda: analysts.filed() == 60, "all filed, none twice")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        for pid in analysts.begun():
            wait_until(partial(is_gone, pid), "no process is left")


@pytest.mark.parametrize("analysts", ["amqp", "sqs", soak("kafka"), soak("pubsub")], indirect=True)
def test_two_share_the_letters_and_a_kill_9_of_one_loses_none(analysts):
    """What the victim had in hand comes to the other one, or to the victim's successor."""
    numbers = count()

    def put_more(many: int) -> None:
        analysts.put(*islice(numbers, many))

    with analysts.run():
        wait_until(analysts.ready, "ready")
        pids = set(analysts.begun())
        wait_until(lambda: (put_more(20), analysts.who_filed() >= pids)[1], "both to file")
        put_more(60)
        os.kill(analysts.begun()[1], signal.SIGKILL)
        put_more(20)
        published = next(numbers)
        wait_until(lambda: analysts.filed() >= published, "all to be filed")
        assert analysts.filed() == published


def test_what_the_app_refuses_ends_the_command_before_anything_begins(make_site):
    site = make_site(ROAD_DLQ=json.dumps({"backend": "amqp", "amqp_url": "amqp://nowhere"}))
    environment = {**os.environ, **site.environment, "PYTHONPATH": PATH}
    command = ["angzarr", "-A", "road_app", "dlq", "analyze", "--processes", "2"]
    done = warm_process.run([*command, "--domain", "nonsense"], environment=environment)
    assert done.returncode == 2
    assert "--domain nonsense: this app has no such domain" in done.stdout + done.stderr
    assert "process_started" not in done.stdout + done.stderr
