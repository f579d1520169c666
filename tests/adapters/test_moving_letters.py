"""Letters moved over real servers by the command itself, which is killed half-way."""

from __future__ import annotations

import itertools
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
from click.testing import CliRunner

from adapters.pubsub_site import PROJECT
from angzarr.cli.main import main
from angzarr.dead_letters.queue import DeadLetterQueue, RawLetter, put_raw
from angzarr.dead_letters.transfer import waiting
from angzarr.settings.dlq_urls import read_url
from angzarr.wiring.dead_letters import open_backend
from contracts.dead_letters import letters_of, take
from polling import wait_until

COUNT = 120


class Site:
    """Three queues, named as a person would, with a domain and a consumer group of a test's own."""

    def __init__(self, amqp: str, kafka: str, sqs: str, stack: ExitStack) -> None:
        self.domain = f"t{uuid.uuid4().hex[:10]}"
        self.rabbitmq = amqp
        self.kafka = f"kafka://{kafka}?group=angzarr-test-{uuid.uuid4().hex}"
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
        command = [sys.executable, "-m", "angzarr", "dlq", *words]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ
        )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    def run(self, *words: str) -> str:
        done = CliRunner().invoke(main, ["dlq", *words])
        assert done.exit_code == 0, done.output
        return done.output

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


def test_a_mover_that_is_killed_on_the_way_over_three_brokers_loses_nothing(site: Site) -> None:
    wanted = site.fill(site.rabbitmq)
    into = site.open(site.kafka)
    words = ("move", "--from", site.rabbitmq, "--to", site.kafka, "--domain", site.domain, "--yes")
    killed = site.start(*words, "--rate", "20")
    wait_until(lambda: site.waiting(into), "some letters were moved")
    killed.kill()
    killed.communicate()
    assert "moved" in site.run(*words)
    assert COUNT <= (site.waiting(into) or 0) <= 2 * COUNT, "none is there more than twice"
    into.close()
    site.run("move", "--from", site.kafka, "--to", site.sqs, "--domain", site.domain, "--yes")
    found = site.take_all(site.open(site.sqs))
    assert set(found) == wanted
    assert max(found.values()) <= 2, "a letter is in both queues at worst, so it is moved twice"
    assert site.waiting(site.open(site.rabbitmq)) == site.waiting(into) == 0


def test_what_cannot_be_read_goes_on_over_every_kind_of_place_as_it_came(
    site: Site, tmp_path: Path, pubsub_emulator: str
) -> None:
    told = {(b"no letter \xff", ""), (b"{damaged", "application/json"), (b"\xff", "text/odd")}
    raws = [RawLetter(domain=site.domain, raw=raw, content_type=kind) for raw, kind in told]
    assert put_raw(site.open(site.rabbitmq), raws) == [None] * 3
    pubsub, spool = f"pubsub://{PROJECT}", f"spool://{tmp_path}/spool"
    way = (site.rabbitmq, site.sqs, spool, pubsub)
    for source, target in itertools.pairwise(way):
        words = ("--from", source, "--to", target, "--domain", site.domain, "--yes")
        assert "3 of them cannot be read as letters" in site.run("move", *words)
    taken = take(site.open(pubsub), [site.domain], 3)
    assert {(one.raw, one.content_type) for one in taken} == told


def test_a_file_takes_letters_away_from_one_queue_and_brings_them_to_another(
    site: Site, tmp_path: Path
) -> None:
    wanted = site.fill(site.rabbitmq)
    kept, file = tmp_path / "kept.jsonl", tmp_path / "letters.jsonl"
    words = ("export", "--from", site.rabbitmq, "--domain", site.domain, "--to")
    site.run(*words, str(kept))
    source = site.open(site.rabbitmq)
    wait_until(lambda: site.waiting(source) == COUNT, "all are still there")
    site.run(*words, str(file), "--drain")
    assert site.waiting(source) == 0
    assert letters_in(kept) == letters_in(file)
    assert site.run("import", str(file), "--to", site.sqs) == f"imported {COUNT} letters\n"
    assert site.take_all(site.open(site.sqs)) == Counter(wanted)
