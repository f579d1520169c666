"""Members come to a group of Kafka's and are killed while letters are in everybody's hands."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta

import pytest

from adapters.kafka_faults import write_record
from angzarr.adapters.kafka.dead_letters import KafkaDeadLetterQueue
from angzarr.dead_letters.names import queue_name
from angzarr.dead_letters.queue import Receipt
from contracts.dead_letters import ids, letters_of, take
from polling import wait_until

#: A killed member is missed after the least time that a broker allows.
QUICK = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
AT_ONCE = timedelta(milliseconds=100)
#: Takes letters, says which, and never lets them go.
HOLDER = """
import json, sys
from datetime import timedelta
from angzarr.adapters.kafka.dead_letters import KafkaDeadLetterQueue
brokers, group, domain, options = sys.argv[1:]
queue = KafkaDeadLetterQueue(brokers, group=group, options=json.loads(options))
while True:
    taken = queue.receive([domain], limit=100, wait=timedelta(milliseconds=100))
    if taken:
        print(json.dumps([one.letter.id for one in taken]), flush=True)
"""


class Group:
    """The members of one group, each with what it took and did not let go."""

    def __init__(self, brokers: str, stack: ExitStack) -> None:
        self.brokers, self.name = brokers, f"angzarr-test-{uuid.uuid4().hex}"
        self.domain = f"t{uuid.uuid4().hex[:10]}"
        self.held: dict[KafkaDeadLetterQueue, list[Receipt]] = {}
        self._stack = stack

    def join(self) -> KafkaDeadLetterQueue:
        queue = KafkaDeadLetterQueue(self.brokers, group=self.name, partitions=6, options=QUICK)
        self._stack.callback(queue.close)
        self.held[queue] = []
        return queue

    def look(self) -> None:
        """Let each member take what comes; a group changes only while its members look."""
        for queue in self.held:
            self.held[queue] += queue.receive([self.domain], limit=100, wait=AT_ONCE)

    def look_until(self, truth: Callable[[], object], what: str) -> None:
        wait_until(lambda: (self.look(), truth())[1], what)

    def start_holder(self) -> tuple[subprocess.Popen[str], list[str]]:
        """Start a process that takes letters; return it and the ids that it told."""
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, self.brokers, self.name, self.domain, json.dumps(QUICK)],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._stack.callback(process.communicate)
        self._stack.callback(process.kill)
        told: list[str] = []
        output = process.stdout
        assert output is not None

        def read() -> None:
            for line in output:
                told.extend(json.loads(line))

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        self._stack.callback(reader.join)
        self._stack.callback(process.kill)
        return process, told


@pytest.fixture
def group(kafka_brokers: str) -> Iterator[Group]:
    with ExitStack() as stack:
        yield Group(kafka_brokers, stack)


def test_members_that_come_and_one_that_is_killed_lose_no_letter_in_anybodys_hands(
    group: Group,
) -> None:
    letters = letters_of(group.domain, 120)
    everything = {letter.id for letter in letters}
    first = group.join()
    assert first.put(letters[:60]) == [None] * 60
    group.held[first] = take(first, [group.domain], 60)
    second = group.join()
    group.look_until(lambda: group.held[second], "the second has letters of the first")
    # Done after the revoke: what went to the second is not committed over.
    first.done(group.held.pop(first))
    group.held[first] = []
    taken_over = set(ids(group.held[second]))
    process, told = group.start_holder()
    assert first.put(letters[60:]) == [None] * 60
    group.look_until(lambda: told, "the third has letters")
    process.kill()
    process.wait()
    with_the_dead = set(told)
    seen: set[str] = set()

    def finish() -> bool:
        for queue, held in group.held.items():
            seen.update(ids(held))
            queue.done(held)
            held.clear()
        return watcher.waiting([group.domain]) == {group.domain: 0}

    watcher = KafkaDeadLetterQueue(group.brokers, group=group.name)
    group.look_until(finish, "everything is committed")
    watcher.close()
    assert with_the_dead <= seen
    assert taken_over <= seen
    assert {letter.id for letter in letters[60:]} <= seen
    assert seen <= everything


def test_a_letter_that_cannot_be_read_blocks_no_partition(group: Group) -> None:
    queue = KafkaDeadLetterQueue(group.brokers, group=group.name, partitions=1)
    queue.put(letters_of(group.domain, 2))
    port = int(group.brokers.rpartition(":")[2])
    for raw in (b"", b"\x00\xff", b'{"cover": 3}', b"[" * 100_000):
        write_record(port, queue_name(group.domain), raw, [(b"content-type", b"\xff\xfe")])
    queue.put(letters_of(group.domain, 2))
    taken = take(queue, [group.domain], 8)
    assert [bool(one.letter) for one in taken] == [True] * 2 + [False] * 4 + [True] * 2
    queue.done(taken)
    queue.close()
    again = KafkaDeadLetterQueue(group.brokers, group=group.name)
    assert again.waiting([group.domain]) == {group.domain: 0}
    again.close()
