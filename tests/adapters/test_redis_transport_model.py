"""Anything that workers, networks and Redis may do, in any order: no message is lost or doubled.

After each step everything in Redis is read, and every message that moved must have had a reason.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from itertools import count, pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from kombu import Producer

from adapters.redis_hands import AWAY, Late, Worker, take_time_in_hand
from adapters.redis_places import Place, Places, look
from angzarr.adapters.redis.session import SESSIONS_A_TURN
from endurance import longer
from redis_servers import PrivateRedis

#: Examples of one run; thousands for a long one.
EXAMPLES = int(os.environ.get("ANGZARR_MODEL_EXAMPLES", longer(40, 400)))
STEPS = int(os.environ.get("ANGZARR_MODEL_STEPS", "40"))
#: Finding the smallest example takes minutes.
SHRINK = os.environ.get("ANGZARR_MODEL_SHRINK") == "1"
QUEUES, PRIORITIES = ["a", "b"], [0, 3, 6, 9]
FATES = ["fine", "unsent", "unheard", "cut", "late"]
PICK = st.integers(0, 11)
_NUMBERS = count(1)


class Fleet(RuleBasedStateMachine):
    """Up to three workers, a publisher, a bad network and somebody who forgets scripts."""

    server: PrivateRedis

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.stack.callback(take_time_in_hand())
        self.client = self.server.client()
        self.prefix = f"m{next(_NUMBERS)}:"
        self.workers: list[Worker] = []
        self.gone_workers: list[Worker] = []
        self.before = Places({}, {}, {})
        self.numbers = count(1)
        self.published: set[int] = set()
        self.unsure: set[int] = set()
        #: All that was ever seen in Redis.
        self.ever: set[int] = set()
        self.acknowledged: set[tuple[str, str]] = set()
        self.given: set[tuple[str, str]] = set()
        self.fresh: list[tuple[Worker, object]] = []
        #: What workers have in hand and did not answer yet.
        self.received: list[tuple[Worker, object]] = []
        self.late: list[Late] = []
        self.excuse()
        self.publisher = self.make_worker(looped=False, prefetch=1)
        self.publisher.consumer.cancel()

    def excuse(
        self,
        *,
        fetching: Iterable[Worker] = (),
        giving: Iterable[Worker] = (),
        burying: bool = False,
    ) -> None:
        """Say what the coming step may do."""
        self.fetching = {worker.hash for worker in fetching}
        self.giving = {worker.hash for worker in giving}
        self.burying = burying

    def make_worker(self, *, looped: bool, prefetch: int) -> Worker:
        worker = Worker(
            self.server.url, QUEUES, self.on_message, self.late.append,
            looped=looped, prefetch=prefetch, global_keyprefix=self.prefix,
            priority_steps=PRIORITIES,
        )  # fmt: skip
        self.workers.append(worker)
        return worker

    def on_message(self, worker: Worker, message) -> None:
        number, tag = message.headers["n"], message.delivery_tag
        assert (worker.hash, tag) not in self.given, f"{number} was given twice to its holder"
        self.given.add((worker.hash, tag))
        self.fresh.append((worker, message))

    # -- what happens ------------------------------------------------------------------------------

    @initialize(kinds=st.lists(st.booleans(), min_size=1, max_size=3), prefetch=st.integers(1, 6))
    def begin(self, kinds, prefetch):
        for looped in kinds:
            self.make_worker(looped=looped, prefetch=prefetch)

    # What is drawn never depends on what came of it before, else no example could be run again.

    def some(self, pick: int, *, alive: bool = True) -> Worker:
        found = [worker for worker in self.workers[1:] if worker.alive or not alive]
        return found[pick % len(found)]

    def any_alive(self) -> bool:
        return any(worker.alive for worker in self.workers[1:])

    @rule(queue=st.sampled_from(QUEUES), priority=st.sampled_from(PRIORITIES),
          times=st.integers(1, 4), fate=st.sampled_from(["fine", *FATES]))  # fmt: skip
    def publish(self, queue, priority, times, fate):
        self.publisher.network.fates.extend([fate])
        for _ in range(times):
            number = next(self.numbers)
            self.unsure.add(number)
            with suppress(*AWAY):
                Producer(self.publisher.channel).publish(
                    {}, routing_key=queue, priority=priority, headers={"n": number}
                )
                self.unsure.remove(number)
                self.published.add(number)
        self.publisher.network.fates.clear()
        self.excuse()

    @precondition(any_alive)
    @rule(pick=PICK, fates=st.lists(st.sampled_from(FATES), max_size=3),
          times=st.integers(1, 3))  # fmt: skip
    def turn(self, pick, fates, times):
        worker = self.some(pick)
        self.excuse(fetching=[worker], giving=[worker])
        self.let_turn(worker, fates, times)
        self.received += self.fresh
        self.fresh.clear()

    def let_turn(self, worker: Worker, fates: Iterable[str] = (), times: int = 1) -> None:
        worker.network.fates.extend(fates)
        for _ in range(times):
            worker.turn()
        worker.network.fates.clear()

    @precondition(any_alive)
    @rule(pick=PICK, queue=st.sampled_from(QUEUES), fate=st.sampled_from(FATES))
    def get(self, pick, queue, fate):
        worker = self.some(pick)
        self.excuse(fetching=[worker], giving=[worker])
        worker.network.fates.append(fate)
        message = None
        with suppress(*AWAY):
            message = worker.channel.basic_get(queue)
        worker.network.fates.clear()
        if message is not None:
            self.on_message(worker, message)
            self.received.append(self.fresh.pop())

    @rule(pick=PICK, how=st.sampled_from(["ack", "ack", "ack", "reject", "requeue"]),
          fate=st.sampled_from(["fine", "fine", *FATES]))  # fmt: skip
    def answer(self, pick, how, fate):
        self.received = [one for one in self.received if one[0].alive]
        if not self.received:
            return
        worker, message = self.received.pop(pick % len(self.received))
        self.excuse(giving=[worker] if how == "requeue" else [])
        if how != "requeue":
            self.acknowledged.add((worker.hash, message.delivery_tag))
        worker.network.fates.append(fate)
        with suppress(*AWAY):
            getattr(message, how)()
        worker.network.fates.clear()

    @precondition(any_alive)
    @rule(pick=PICK, fate=st.sampled_from(["fine", *FATES]), again=st.booleans())
    def cancel(self, pick, fate, again):
        worker = self.some(pick)
        self.excuse(fetching=[worker], giving=[worker])
        worker.network.fates.append(fate)
        with suppress(*AWAY):
            worker.consumer.cancel()
        worker.network.fates.clear()
        if again:
            worker.consumer.consume()

    @precondition(any_alive)
    @rule(pick=PICK, lease_ends=st.booleans())
    def kill(self, pick, lease_ends):
        worker = self.some(pick)
        self.excuse()
        worker.kill()
        if lease_ends:
            worker.end_lease(self.client)

    @precondition(any_alive)
    @rule(pick=PICK, fate=st.sampled_from(["fine", *FATES]))
    def stop(self, pick, fate):
        worker = self.some(pick)
        self.excuse(fetching=[worker], giving=[worker])
        worker.network.fates.append(fate)
        worker.close()
        worker.network.fates.clear()
        self.fresh.clear()

    @precondition(lambda self: len([w for w in self.workers[1:] if w.alive]) < 3)
    @rule(looped=st.booleans(), prefetch=st.integers(1, 6))
    def start(self, looped, prefetch):
        self.excuse()
        self.make_worker(looped=looped, prefetch=prefetch)

    @precondition(lambda self: len(self.workers) > 1)
    @rule(pick=PICK)
    def a_lease_ends(self, pick):
        self.excuse()
        self.some(pick, alive=False).end_lease(self.client)

    @precondition(any_alive)
    @rule(pick=PICK)
    def renew(self, pick):
        self.excuse()
        self.some(pick).session.renew()

    @precondition(any_alive)
    @rule(pick=PICK, fates=st.lists(st.sampled_from(FATES), max_size=3))
    def judge(self, pick, fates):
        worker = self.some(pick)
        self.excuse(burying=True)
        worker.network.fates.extend(fates)
        with suppress(*AWAY):
            worker.session.judge()
        worker.network.fates.clear()

    @rule()
    def leave_at_last(self):
        leaving = [worker for worker in self.workers if worker.session.leaving]
        self.excuse(giving=leaving)
        for worker in leaving:
            worker.session.leave()

    @rule(pick=PICK)
    def arrive(self, pick):
        if not self.late:
            return
        late = self.late.pop(pick % len(self.late))
        self.excuse(fetching=[late.worker], giving=self.workers, burying=True)
        with suppress(*AWAY):
            self.client.execute_command(*late.command)

    @rule()
    def forget_scripts(self):
        self.excuse()
        self.client.script_flush()

    # -- what must be true -------------------------------------------------------------------------

    @invariant()
    def every_message_is_in_one_place_for_a_reason(self):
        now, before = look(self.client, self.prefix), self.before
        for number in now.of.keys() | before.of.keys():
            after, was = now.of.get(number, []), before.of.get(number, [])
            assert len(after) <= 1, f"{number} is in {after}"
            if after != was:
                self.check_move(number, was[0] if was else None, after[0] if after else None)
        for number in self.published - before.of.keys():
            assert number in now.of or number in self.ever, f"{number} never came"
        self.ever |= set(now.of)
        self.check_order(before, now)
        self.before = now

    def check_move(self, number: int, was: Place | None, now: Place | None) -> None:
        moved = f"{number}: {was} -> {now}"
        if was is None:
            assert number not in self.ever, f"came back from nowhere, {moved}"
            assert now.tag == "" or now.key in self.fetching, moved
        elif now is None:
            assert (was.key, was.tag) in self.acknowledged, f"lost, {moved}"
        elif was.tag == "":
            assert now.key in self.fetching, moved
        else:
            dead = self.burying and not self.before.leases[was.key]
            acknowledged = (was.key, was.tag) in self.acknowledged
            assert dead or (was.key in self.giving and not acknowledged), moved
            assert now.redelivered, f"not flagged, {moved}"

    def check_order(self, before: Places, now: Places) -> None:
        """What is given back at once keeps its order, and what waited keeps its own."""
        for key, numbers in now.lists.items():
            stayed = [number for number in numbers if number in before.lists.get(key, ())]
            assert stayed == [n for n in before.lists.get(key, ()) if n in stayed], (key, numbers)
            if not self.burying:
                continue
            back = [n for n in numbers if n in before.of and before.of[n][0].tag]
            assert numbers[: len(back)] == back, f"not at the front: {numbers}"
            for one in {before.of[n][0].key for n in back}:
                ages = [before.of[n][0].age for n in back if before.of[n][0].key == one]
                assert ages == sorted(ages), f"order of {key}: {numbers}"
        for one in self.fetching:
            held = [place[0] for place in now.of.values() if place[0].key == one]
            new = sorted((p for p in held if p.tag), key=lambda p: (p.tag.split(":")[0], p.age))
            for first, second in pairwise(new):
                if first.tag.rpartition(":")[0] == second.tag.rpartition(":")[0]:
                    assert _step(first) <= _step(second), (first, second)

    # -- the end -----------------------------------------------------------------------------------

    def teardown(self):
        with self.stack:
            self.stack.callback(self.abandon_all)
            self.finish()

    def abandon_all(self) -> None:
        """Leave nothing that would act when it is collected."""
        for worker in self.workers:
            if worker.alive:
                worker.kill()

    def finish(self) -> None:
        """Let the network deliver, the dead be buried and the living work: all is done once."""
        while self.late:
            late = self.late.pop()
            self.excuse(fetching=[late.worker], giving=self.workers, burying=True)
            with suppress(*AWAY):
                self.client.execute_command(*late.command)
            self.every_message_is_in_one_place_for_a_reason()
        for worker in self.workers[1:]:
            self.fresh.clear()
            for _ in range(3 if worker.alive else 0):
                self.excuse(fetching=[worker], giving=[worker])
                self.let_turn(worker)
                self.every_message_is_in_one_place_for_a_reason()
            if worker.alive:
                for _ in range(2):
                    worker.channel.give_back_strays()
                self.every_message_is_in_one_place_for_a_reason()
                self.nothing_is_in_limbo(worker)
        for worker in self.workers:
            self.excuse(fetching=[worker], giving=[worker])
            if worker.alive:
                worker.close()
            if worker.session.leaving:
                worker.session.leave()
            worker.end_lease(self.client)
            self.every_message_is_in_one_place_for_a_reason()
        last = self.make_worker(looped=False, prefetch=0)
        self.excuse(burying=True)
        for _ in range(1 + len(self.workers) // SESSIONS_A_TURN):
            last.session.judge()
        self.every_message_is_in_one_place_for_a_reason()
        self.fresh.clear()
        while self.before.of:
            self.excuse(fetching=[last])
            last.turn()
            self.every_message_is_in_one_place_for_a_reason()
            fresh, self.fresh = self.fresh, []
            for _, message in fresh:
                self.acknowledged.add((last.hash, message.delivery_tag))
                message.ack()
            self.every_message_is_in_one_place_for_a_reason()
        last.close()
        self.nothing_is_left()

    def nothing_is_left(self) -> None:
        """Redis is as before, bindings aside, and but for what ends by itself."""
        keys = {
            key.decode().removeprefix(self.prefix) for key in self.client.keys(f"{self.prefix}*")
        }
        assert {
            key
            for key in keys
            if not key.startswith("_kombu.binding") and self.client.ttl(self.prefix + key) == -1
        } == set()

    def nothing_is_in_limbo(self, worker: Worker) -> None:
        """What a living worker holds it knows of, or it would hold it for ever."""
        tags = {p.tag for places in self.before.of.values() for p in places if p.key == worker.hash}
        assert tags <= worker.knows(), f"in limbo: {tags - worker.knows()}"


def _step(place: Place) -> int:
    return int(place.origin.partition("\x16")[2] or 0)


@pytest.mark.longer
@pytest.mark.timeout(0)  # as many examples as are asked for
def test_no_message_is_lost_or_doubled_whatever_happens(make_redis):
    Fleet.server = make_redis()
    run_state_machine_as_test(
        Fleet,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            print_blob=True,
            database=None,
            phases=[Phase.generate, *([Phase.shrink] if SHRINK else [])],
            suppress_health_check=list(HealthCheck),
        ),
    )
