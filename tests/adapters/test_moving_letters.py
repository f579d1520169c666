"""Letters moved over real servers by the command itself, which is killed half-way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from angzarr.cli.letter_urls import read_url
from angzarr.dead_letters.moving import waiting
from angzarr.dead_letters.queue import DeadLetterQueue
from angzarr.letter_wiring import open_backend
from contracts.dead_letters import letters_of, take
from polling import wait_until

COUNT = 120


class Site:
    """Three queues, named as a person would, with a domain and a consumer group of a test's own."""

    def __init__(self, amqp: str, kafka: str, sqs: str, stack: ExitStack) -> None:
        self.domain = f"t{uuid.uuid4().hex[:10]}"
        self.rabbitmq = amqp
        # A member that is killed is missed after 6 s, the least that a broker allows, not after 45.
        group = f"group=angzarr-test-{uuid.uuid4().hex}"
        self.kafka = f"kafka://{kafka}?{group}&session.timeout.ms=6000"
        self.sqs = f"sqs://us-east-1?endpoint={sqs}"
        self._stack = stack

    def open(self, url: str) -> DeadLetterQueue:
        place = read_url(url)
        queue = open_backend(place.backend, place.settings(), "")
        self._stack.callback(queue.close)
        return queue

    def fill(self, url: str) -> set[str]:
        letters = letters_of(self.domain, COUNT)
        assert self.open(url).put(letters) == [None] * COUNT
        return {letter.id for letter in letters}

    def waiting(self, queue: DeadLetterQueue) -> int | None:
        """Count, or None where a topic that was made just now is not ready to be counted."""
        return waiting(queue, [self.domain])

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "angzarr", "dlq", *words, "--domain", self.domain]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ
        )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    def run(self, *words: str) -> str:
        process = self.start(*words)
        said = process.communicate(timeout=90)[0]
        assert process.returncode == 0, said
        return said

    def take_all(self, queue: DeadLetterQueue) -> Counter[str]:
        """Take what waits, done as it comes, until every id came."""
        found: Counter[str] = Counter()
        while len(found) < COUNT:
            taken = take(queue, [self.domain], 1)
            assert taken, f"only {len(found)} of {COUNT} letters came"
            queue.done(taken)
            found.update(one.letter.id for one in taken if one.letter)
        return found


def letters_in(file: Path) -> list[Any]:
    return sorted(
        map(json.loads, file.read_bytes().splitlines()),
        key=lambda line: line["letter"]["metadata"]["letter_id"],
    )


@pytest.fixture
def site(amqp_url: str, kafka_brokers: str, sqs_endpoint: str) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(amqp_url, kafka_brokers, sqs_endpoint, stack)


@pytest.mark.parametrize(("source", "target"), [("rabbitmq", "kafka"), ("kafka", "sqs")])
def test_a_mover_that_is_killed_loses_nothing_and_the_next_one_finishes(
    site: Site, source: str, target: str
) -> None:
    here, there = getattr(site, source), getattr(site, target)
    wanted = site.fill(here)
    into = site.open(there)
    words = ("move", "--from", here, "--to", there, "--yes")
    killed = site.start(*words, "--rate", "20")
    wait_until(lambda: site.waiting(into), "some letters were moved", 40)
    killed.kill()
    killed.communicate()
    said = site.run(*words)
    assert "moved" in said
    found = site.take_all(into)
    assert set(found) == wanted
    assert max(found.values()) <= 2, "a letter is in both queues at worst, so it is moved twice"
    assert site.waiting(site.open(here)) == 0


def test_a_file_takes_letters_away_from_one_queue_and_brings_them_to_another(
    site: Site, tmp_path: Path
) -> None:
    wanted = site.fill(site.rabbitmq)
    kept, file = tmp_path / "kept.jsonl", tmp_path / "letters.jsonl"
    site.run("export", "--from", site.rabbitmq, "--to", str(kept))
    source = site.open(site.rabbitmq)
    wait_until(lambda: site.waiting(source) == COUNT, "all are still there")
    site.run("export", "--from", site.rabbitmq, "--to", str(file), "--drain")
    assert site.waiting(source) == 0
    assert letters_in(kept) == letters_in(file)
    imported = subprocess.run(
        [sys.executable, "-m", "angzarr", "dlq", "import", str(file), "--to", site.sqs],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (imported.returncode, imported.stdout) == (0, f"imported {COUNT} letters\n")
    assert site.take_all(site.open(site.sqs)) == Counter(wanted)


@pytest.mark.parametrize("name", ["rabbitmq", "kafka", "sqs"])
def test_what_waits_is_counted_and_what_is_in_hand_is_not(site: Site, name: str) -> None:
    queue = site.open(getattr(site, name))
    assert site.waiting(queue) == 0
    site.fill(getattr(site, name))
    assert wait_until(lambda: site.waiting(queue) == COUNT, "all are counted")
    held = take(queue, [site.domain], 50)
    assert wait_until(lambda: site.waiting(queue) == COUNT - len(held), "those in hand are not")
    queue.done(held[:30])
    assert wait_until(lambda: site.waiting(queue) == COUNT - len(held), "those done are gone")
