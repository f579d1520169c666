"""Sender: sends one event by the doors that an application would use, garbage as it is.

All may be called by several threads, and raise what the app or its broker raises.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from angzarr.events.event import Message, task_id_for
from chaos.fates import BATCHED, GUARDED, LETHAL, LIMITED, MAIN, ORDERED, PAIR, QUEUE
from chaos.garbage import raw
from chaos.revocations import Revocation
from chaos.stream import Planned

#: Seconds for which a revocation waits for all workers: longer than one is frozen, or starts.
HEARD_WITHIN = 15.0
#: Seconds that an answer to a broadcast may take, and between two looks at who is up.
ANSWER, LOOK = 1.5, 0.1
#: What follows a worker's name in its host name, and before that in those of its processes.
HOST, OF_WORKER = "@chaos", "-"


class Sender:
    """Sends with *module* (the app under test) to the broker itself."""

    def __init__(self, module: Any, push_raw: Callable[[bytes], None]) -> None:
        self._module = module
        self._push_raw = push_raw

    def send(self, planned: Planned) -> None:
        """Send *planned* once; return when the broker has confirmed it."""
        if planned.fate.raw:
            self._send_raw(planned)
        elif planned.fate.in_steps:
            first, second = (
                self._module.app.tasks[name].si(planned.id).set(task_id=task_id)
                for name, task_id in planned.pairs
            )
            (first | second).apply_async()
        elif planned.fate.name == "unknown":
            name = planned.fate.handlers[0]
            self._module.app.send_task(name, [planned.data], task_id=planned.id)
        else:
            self._publish(planned)

    def revoke(
        self, planned: Planned, readiness: Callable[[], Mapping[str, int]], until: float
    ) -> Revocation:
        """Broadcast that *planned* is revoked, until all workers of *readiness* have confirmed it.

        It tells of how many nodes each is; 0: it is not ready.

        Who has not within `HEARD_WITHIN`, or by *until*, is not waited for. Never raises: a broker
        that is away carries no broadcast.
        """
        start, workers = time.monotonic(), readiness()
        up = frozenset(name for name, nodes in workers.items() if nodes)
        confirmed: set[str] = set()
        heard: set[str] = set()
        while time.monotonic() < min(start + HEARD_WITHIN, until) and not heard >= workers.keys():
            up_now = sum(workers.values())
            confirmed |= self._confirmations(planned, up_now) if up_now else set()
            nodes_of = Counter(node.partition(OF_WORKER)[0] for node in confirmed)
            heard |= {name for name, nodes in workers.items() if 0 < nodes <= nodes_of[name]}
            time.sleep(LOOK)
            workers = readiness()
        return Revocation(start=start, end=time.monotonic(), up=up, heard=frozenset(heard))

    def _confirmations(self, planned: Planned, awaited: int) -> set[str]:
        """Broadcast it, and return the nodes that confirm it, once *awaited* of them have."""
        try:
            answers = self._module.app.control.revoke(
                task_id_for(planned.id, MAIN), reply=True, timeout=ANSWER, limit=awaited
            )
        except Exception:  # the broker is away; each client has errors of its own
            return set()
        said = [pair for answer in answers or () for pair in answer.items()]
        return {host.removesuffix(HOST) for host, what in said if "ok" in what}

    def _publish(self, planned: Planned) -> None:
        options: dict[str, Any] = {}
        if planned.delay:
            options["countdown"] = planned.delay
        if planned.fate.name == "expired":
            options["expires"] = datetime.now(UTC) - timedelta(seconds=5)
        if planned.root:
            options |= {"domain": "lane", "root": planned.root, "sequence": planned.sequence}
        self._module.app.publish(self._event(planned), id=planned.id, **options)

    def _event(self, planned: Planned) -> object:
        module, handlers = self._module, planned.fate.handlers
        trials = {
            PAIR: module.PairTrial,
            (LIMITED,): module.LimitedTrial,
            (GUARDED,): module.GuardedTrial,
            (ORDERED,): module.OrderedTrial,
            (BATCHED,): module.BatchedTrial,
            (LETHAL,): module.LethalTrial,
        }
        return trials.get(handlers, module.Trial)(**planned.data)

    def _send_raw(self, planned: Planned) -> None:
        wrong = raw(planned.kind, planned.id)
        if wrong.envelope:
            self._push_raw(wrong.body)
            return
        message = Message(
            body=wrong.body, headers=wrong.headers, content_type=wrong.content_type,
            content_encoding=wrong.content_encoding, queue=QUEUE,
        )  # fmt: skip
        self._module.app.ops.open_publisher().publish(message)
