"""What events a test published, what kills cut of them, and that nothing else happened to them."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing
from datetime import timedelta

import redis

from angzarr.resilience.idempotency import key_for
from polling import wait_until

#: Starts that nobody settled after which the next one makes an event poison.
MOST_STARTS = 3


class Tale:
    """What was published, what became of it, and what each kill cut; its text tells all of it."""

    def __init__(self, site):
        self.site = site
        self.published = set()
        self.letters = {}
        #: Event → its runs whose claim nobody had completed when their worker was dead.
        self.cut = Counter()

    def publish(self, count, seconds=0.4):
        thing = self.site.module.Thing
        for n in range(len(self.published), len(self.published) + count):
            self.site.app.publish(thing(n=n, fate="slow", seconds=seconds), id=self._id(n))
            self.published.add(n)

    @property
    def runs(self):
        return Counter(line["n"] for line in self.site.ran("handle"))

    @property
    def handled(self):
        return {line["n"] for line in self.site.ran("handled")}

    def at_work(self):
        """Return how many are handled by now, if one is running; else none."""
        return len(self.handled) if self.runs.keys() - self.handled else 0

    def note_cut(self, pids, *, by):
        """Note what dead processes had begun and not completed; *by* "pid" or "worker", a group."""
        mine = {line["n"] for line in self.site.ran("handle") if line[by] in pids}
        self.cut.update(n for n in mine if not self._is_completed(n))

    def told(self, subtype):
        """Return the events of which the log has a fact of this kind."""
        lines = (line for line in self.site.text().splitlines() if '"event":"fact"' in line)
        told = (json.loads(line[line.index("{") :]) for line in lines)
        return {
            int(one["event_id"].rpartition("-")[2]) for one in told if one["subtype"] == subtype
        }

    def finish(self):
        """Wait until each event has its end; what gets no further is told."""
        with closing(self.site.app.ops.open_dead_letter_queue()) as queue:
            while not self.is_over(queue):
                told = self.ended()
                wait_until(lambda seen=told: self.is_over(queue) or self.ended() != seen, self)

    def check(self):
        """Nothing is lost, and nothing ran that no kill had cut, or beyond its starts."""
        assert self.cut, "the kills cut nothing: nothing was tried"
        assert self.ended() == self.published, str(self)
        assert not self.handled & self.letters.keys(), str(self)
        assert self.told("handled") >= {n for n in self.handled if self._is_completed(n)}
        for n in self.published:
            fate = self.fate(n)
            assert self.runs[n] == self.cut[n] + (n in self.handled), fate
            if letter := self.letters.get(n):
                assert (letter.reason, self.starts(n) > MOST_STARTS) == ("poison", True), fate

    def is_over(self, queue):
        receipts = queue.receive(["thing"], limit=10, wait=timedelta(0))
        queue.done(receipts)
        self.letters |= {one.letter.event.data["n"]: one.letter for one in receipts}
        return self.ended() >= self.published

    def ended(self):
        return self.handled | self.letters.keys()

    def starts(self, n):
        return int(self._record(n, "starts") or 0)

    def fate(self, n):
        told = self.letters.get(n)
        return (
            f"event {n}: {self.runs[n]} runs, {self.cut[n]} of them cut,"
            f" {'handled' if n in self.handled else 'not handled'},"
            f" letter {told and told.reason}, its record {self._record(n, 'status')},"
            f" {self.starts(n)} starts"
        )

    def __str__(self):
        told = (self.fate(n) for n in sorted(self.published))
        return "\n".join(("one more to end:", *told, f"left in the queue: {self._left()}"))

    def _left(self):
        """Return what SQS has of the queue: what is nowhere is lost, and what is there is late."""
        if not self.site.app.ops.broker_url.startswith("sqs"):
            return "see the broker"
        with self.site.app.connection_for_read() as connection:
            channel = connection.default_channel
            name = channel.canonical_queue_name(self.site.app.conf.task_default_queue)
            told = channel.sqs(queue=name).get_queue_attributes(
                QueueUrl=channel._new_queue(name), AttributeNames=["All"]
            )
        return {k: n for k, n in told["Attributes"].items() if k.startswith("Approximate")}

    def _is_completed(self, n):
        return self._record(n, "status") == "completed"

    def _id(self, n):
        return f"{self.site.module.PREFIX}-{n}"

    def _record(self, n, field):
        name = f"{self.site.module.PREFIX}:{key_for('road_app.handle', self._id(n))}"
        with redis.Redis.from_url(self.site.environment["ANGZARR_STORE"]) as client:
            return (client.hget(name, field) or b"").decode()
