"""Sites of the order app: its events, its read models, and what is said of its lanes."""

from __future__ import annotations

import random
from collections import defaultdict
from contextlib import ExitStack, contextmanager, suppress

import pytest
from sqlalchemy import create_engine, select

from angzarr.aggregates.book import Address
from angzarr.events import headers as names
from angzarr.events.headers import number_or
from angzarr.events.publication import Publication
from angzarr.ordering.lane import Lane
from angzarr.wiring.event_store import orders_of
from polling import wait_until
from system.conftest import Site


class OrderSite(Site):
    """Its read models are made and dropped by it."""

    name = "order_app"

    def __init__(self, folder, environment, monkeypatch, url):
        """*url* is that of the database itself, however its workers come to it."""
        super().__init__(folder, environment, monkeypatch)
        self.engine = create_engine(url)
        self.domain = self.module.DOMAIN
        for table in (self.module.TABLE, self.module.SECOND):
            table.create(self.engine)

    def close(self):
        super().close()
        self.engine.dispose()

    @property
    def lanes(self):
        return self.app._parts.ordering.lanes

    @property
    def totals(self):
        """The task name of the projection."""
        return f"projection.{self.module.PREFIX}.totals"

    @contextmanager
    def workers(self, number, **environment):
        """Give workers that begin together, when all are ready."""
        said = len(self.text())
        with ExitStack() as stack:
            begun = [stack.enter_context(self.begun_worker(**environment)) for _ in range(number)]
            wait_until(lambda: self.text()[said:].count(" ready.") >= number, "all to be ready")
            yield begun

    # -- events ----------------------------------------------------------------------------------

    def entry(self, root, n, fate="fine", kind="Entry", **more):
        event = getattr(self.module, kind)(n=n, fate=fate)
        return Publication(
            event, id=f"{root}-{n}-{self.module.PREFIX}", domain=self.domain, root=root,
            sequence=n, **more,
        )  # fmt: skip

    def publish(self, *entries):
        return self.app.publish_many(entries)

    def publish_range(self, root, *sequences):
        return self.publish(*(self.entry(root, n) for n in sequences))

    def send_by_hand(self, task, *, root, n, headers=None, args=None, **more):
        """Send one handler a message as anybody might write it."""
        said = {
            names.EVENT_ID: f"{root}-{n}-{self.module.PREFIX}", names.EVENT_TYPE: "Entry",
            names.DOMAIN: self.domain, names.ROOT: root, names.SEQUENCE: n, **(headers or {}),
        }  # fmt: skip
        said = {name: value for name, value in said.items() if value is not None}
        args = [{"n": n}] if args is None else args
        self.app.send_task(task, args=args, headers=names.OwnHeaders(said), **more)

    def send_raw(self, task, body, *, root, n):
        """Send one handler a message whose *body* is whatever it is."""
        event_id = f"{root}-{n}-{self.module.PREFIX}"
        said = {
            "lang": "py", "task": task, "id": event_id, "retries": 0, names.EVENT_ID: event_id,
            names.EVENT_TYPE: "Entry", names.DOMAIN: self.domain, names.ROOT: root,
            names.SEQUENCE: n,
        }  # fmt: skip
        with self.app.producer_pool.acquire() as producer:
            producer.publish(
                body, content_type="application/json", content_encoding="utf-8", headers=said,
                exchange="", routing_key=self.module.PREFIX,
            )  # fmt: skip

    def send_again(self, letter):
        """Send the message of a *letter* as its next replay."""
        message = letter.message
        replay = number_or(message.headers.get(names.REPLAY), 0) + 1
        kept = {
            name: value for name, value in message.headers.items()
            if name not in (names.ATTEMPT, names.HOP)
        }  # fmt: skip
        with self.app.producer_pool.acquire() as producer:
            producer.publish(
                message.body, content_type=message.content_type,
                content_encoding=message.content_encoding, exchange="",
                routing_key=message.queue, headers={**kept, "retries": 0, names.REPLAY: replay},
            )  # fmt: skip

    def mend(self):
        """Let what gave up succeed from now on."""
        self.journal.with_name("mended").touch()

    # -- what came of them -----------------------------------------------------------------------

    def model(self, table=None):
        """Return the read model: by aggregate the sequences, and how often it was written to."""
        read = self.module.TABLE if table is None else table
        with self.engine.connect() as connection:
            rows = connection.execute(select(read))
            return {row.root: ([int(n) for n in row.seen.split()], row.writes) for row in rows}

    def runs(self, what="listed"):
        """Return the sequences that the plain handler had, by aggregate, as they were run."""
        found = defaultdict(list)
        for line in self.ran(what):
            found[line["root"]].append(line["n"])
        return dict(found)

    def in_steps(self):
        """Return the runs of the plain handler; one that was cut off and run again counts once."""
        return {
            root: [n for at, n in enumerate(runs) if at == 0 or runs[at - 1] != n]
            for root, runs in self.runs().items()
        }

    def wait_steps(self, expected):
        """Wait until the plain handler ran *expected* in order: sequences by aggregate."""
        exact = {root: list(ran) for root, ran in expected.items()}
        with suppress(pytest.fail.Exception):
            wait_until(lambda: self.in_steps() == exact)
        found = self.in_steps()
        assert {root: ran for root, ran in found.items() if ran != exact.get(root)} == {}
        assert found.keys() == exact.keys()

    def handled_all(self, expected):
        """Tell whether the read model says *expected*."""
        return self.model() == {root: (list(seen), len(seen)) for root, seen in expected.items()}

    def wait_model(self, expected, table=None):
        """Wait until the read model says *expected*: sequences by aggregate."""
        exact = {root: (list(seen), len(seen)) for root, seen in expected.items()}
        with suppress(pytest.fail.Exception):
            wait_until(lambda: self.model(table) == exact)
        found = self.model(table)
        assert {root: said for root, said in found.items() if said != exact.get(root)} == {}
        assert found.keys() == exact.keys()

    def wait_runs(self, expected, what="listed"):
        wait_until(lambda: self.runs(what) == expected, f"{what} to have run all in order")

    def waiting(self, handler, root=None):
        address = None if root is None else Address(self.domain, root, "")
        return self.lanes.waiting(handler, address=address, limit=1000)

    def lane(self, handler, root):
        return Lane(handler, Address(self.domain, root, ""))

    def nothing_waits(self):
        return not any(self.waiting(name) for name in orders_of(self.app.handlers))


def interleaved(roots, events, seed):
    """Return (root, sequence) of each event twice: the aggregates mixed, a third of them shuffled.

    The others come in order, but for neighbours that changed places here and there.
    """
    chance = random.Random(seed)
    queues = {}
    for number, root in enumerate(roots):
        mine = list(range(events)) * 2 if number % 3 == 0 else [n // 2 for n in range(2 * events)]
        if number % 3 == 0:
            chance.shuffle(mine)
        else:
            for at in range(1, len(mine)):
                if chance.random() < 0.2:
                    mine[at - 1], mine[at] = mine[at], mine[at - 1]
        queues[root] = mine
    found = []
    while queues:
        root = chance.choice(list(queues))
        found.append((root, queues[root].pop(0)))
        if not queues[root]:
            del queues[root]
    return found
