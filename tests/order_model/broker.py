"""A broker that hands out messages in any order to workers that die, for ordered handlers.

It keeps account of what the handler did, so that tests can compare it with what was published.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import timedelta

import pytest
from hypothesis import strategies as st

from angzarr.aggregates.book import Address
from angzarr.delivery.delivery import Outcome, Parked
from angzarr.delivery.gap_monitor import LaneKeeper
from angzarr.errors import GiveUp
from angzarr.events import headers as names
from angzarr.events.headers import number_or
from angzarr.facts.fact_text import fact_from_text
from angzarr.facts.outbox_log import lines_of
from angzarr.ordering.lane import Lane, Order
from angzarr.resilience.backoff import Jitter, Policy
from angzarr.resilience.idempotency import Release

HANDLER, DOMAIN, TYPE = "p", "order", "Placed"
POLICY = Policy(
    name="p", base=timedelta(seconds=1), max_delay=timedelta(seconds=1), max_attempts=2,
    jitter=Jitter.NONE,
)  # fmt: skip
#: Where a worker may die: after each of these.
POINTS = (
    "claim", "look", "before", "run", "moved", "parked", "noted", "copy", "released", "letter",
    "fact", "settle", "ack",
)  # fmt: skip


_WHAT = ("deliver",) * 18 + ("replay", "skip", "keep") * 3 + ("reset",)
_ENDS = ("well",) * 3 + ("fails", "gives_up")


class Killed(BaseException):
    """The end of a process, at once."""


@dataclass(frozen=True)
class Step:
    """One thing that happens: which message, who dies where, and what becomes of it."""

    what: str  # deliver, replay, skip, keep, reset
    pick: int
    dies: str | None
    ends: str  # well, fails, gives_up
    freed: bool  # the parent lives and frees the claim of its dead child
    meanwhile: int | None  # which message is delivered between the look and the run
    pause: int


def drawn(chance) -> Step:
    """Draw one thing that happens, as `steps` does, by *chance* (random.Random)."""
    return Step(
        what=chance.choice(_WHAT),
        pick=chance.randrange(31),
        dies=chance.choice([None, *POINTS]),
        ends=chance.choice(_ENDS),
        freed=chance.random() < 0.5,
        meanwhile=chance.choice([None, chance.randrange(31)]),
        pause=chance.randrange(5),
    )


def steps(most: int) -> st.SearchStrategy[list[Step]]:
    """Draw what happens."""
    return st.lists(
        st.builds(
            Step,
            what=st.sampled_from(_WHAT),
            pick=st.integers(0, 30),
            dies=st.none() | st.sampled_from(POINTS),
            ends=st.sampled_from(_ENDS),
            freed=st.booleans(),
            meanwhile=st.none() | st.integers(0, 30),
            pause=st.integers(0, 4),
        ),
        max_size=most,
    )


class Process:
    """A port as one process sees it, until that dies."""

    def __init__(self, port, dying, points):
        self._port, self._dying, self._points = port, dying, points

    def __getattr__(self, verb):
        found = getattr(self._port, verb)
        if verb not in self._points:
            return found

        def call(*args, **options):
            answer = found(*args, **options)
            self._dying(self._points[verb])
            return answer

        return call


class ProcessLanes(Process):
    """Lanes, as one process sees them: what it had begun ends with it."""

    def enter(self, lane):
        """Look, to run."""
        entered = self._port.enter(lane)
        try:
            self._dying("look")
        except Killed:
            entered.close()  # as the database does, when it loses a connection
            raise
        return Process(entered, self._dying, {"run": "moved"})


class TellsTheOutbox:
    """A log of facts whose facts all end in the outbox beside the claims."""

    def __init__(self, outbox):
        self._outbox = outbox

    def append(self, facts, *, before_ack=False):
        """Put them there."""
        self._outbox.put(lines_of(facts))

    def carry(self, facts, *, before_ack=False):
        """Let them be put there."""
        return lines_of(facts)

    def lines(self, facts):
        """Tell which will."""
        return lines_of(facts)


class OrderedBroker:
    """Events of some aggregates in a queue, and what became of them.

    *transactional*: the run writes and moves its lane in one transaction, as projections do.
    """

    def __init__(self, world, model, counts, *, transactional, copies=1):
        self.world, self.model, self.transactional = world, model, transactional
        world.lanes = model.lanes
        self.counts = counts
        self.roots = [f"{model.prefix}-{number}" for number in range(len(counts))]
        self.queue = [message for _ in range(copies) for message in self.all_events()]
        self.open = []  # steps under way, innermost last
        self.runs = defaultdict(list)
        self.given_up = {}  # letter id → its message, while nobody replayed or skipped it
        self.skipped = set()
        #: By the place at which somebody died.
        self.deaths = Counter()
        self.parked = self.resets = 0
        world.handler(self.run, name=HANDLER, policy=POLICY, bind=self.bind, order=Order(
            domains=frozenset({DOMAIN}), types=frozenset({TYPE}), moves=transactional
        ))  # fmt: skip

    def all_events(self):
        return [
            self.message(root, sequence)
            for root, count in zip(self.roots, self.counts, strict=True)
            for sequence in range(count)
        ]

    def message(self, root, sequence, **headers):
        return self.world.message(
            sequence, event_id=f"{root}/{sequence}", task=HANDLER,
            **{names.DOMAIN: DOMAIN, names.ROOT: root, names.SEQUENCE: sequence,
               names.EVENT_TYPE: TYPE, **headers},
        )  # fmt: skip

    def bind(self, delivery, context):
        return lambda: self.run(delivery, context)

    def run(self, delivery, context):
        step = self.open[-1]
        if step.meanwhile is not None and len(self.open) == 1:
            self.deliver(dataclasses.replace(QUIET, pick=step.meanwhile))
        self.die_at("before")
        root, sequence = delivery.event.root, delivery.event.sequence

        def work(connection):
            self.die_at("run")
            if step.ends == "fails":
                raise ConnectionResetError
            if step.ends == "gives_up":
                raise GiveUp("of no use")
            self.model.write(connection, root, sequence)

        if self.transactional:
            context.turn.run(work)
        else:
            work(None)
        self.runs[root].append(sequence)

    def die_at(self, point):
        if self.open and self.open[-1].dies == point:
            raise Killed

    # -- what happens ------------------------------------------------------------------------

    def take(self, step):
        match step.what:
            case "deliver":
                self.deliver(step)
            case "replay" | "skip":
                self.answer(step)
            case "keep":
                self.keep(step)
            case "reset" if self.transactional:
                self.reset()
        self.world.clock.sleep(timedelta(seconds=step.pause))

    def reset(self):
        """Begin anew: all that there was is published once more."""
        self.model.reset(HANDLER)
        self.runs.clear()
        self.resets += 1
        self.queue.extend(self.all_events())

    def deliver(self, step) -> Outcome | None:
        if not self.queue:
            return None
        message = self.queue.pop(step.pick % len(self.queue))
        delivery = self.world.delivery(message, owner=f"owner{self.world.tokens}")
        self.world.leases.renew(delivery.owner, timedelta(days=30))
        self.open.append(step)
        outcome = None
        try:
            outcome = self.road().take(delivery)
            self.parked += isinstance(outcome, Parked)
            self.die_at("ack")
        except Killed:
            self.deaths[step.dies] += 1
            self.queue.append(message)
            if step.freed:
                self.world.store.settle(delivery.key, delivery.token, Release(counted=False))
            else:
                self.world.leases.end(delivery.owner)
        finally:
            self.open.pop()
            self.collect()
        return outcome

    def collect(self):
        """Put what was published into the queue, and letters where people find them."""
        copies, letters = self.world.journal.copies, self.world.journal.letters
        self.queue.extend(copy for copy, _ in copies)
        copies.clear()
        for letter in letters:
            self.given_up[letter.id] = letter
        letters.clear()

    def answer(self, step):
        """Replay or skip one of the letters."""
        if not self.given_up:
            return
        ids = sorted(self.given_up)
        letter = self.given_up.pop(ids[step.pick % len(ids)])
        root, _, sequence = letter.message.headers[names.EVENT_ID].partition("/")
        replay = number_or(letter.message.headers.get(names.REPLAY), 0)
        said = {names.REPLAY: replay + 1, names.LETTER_ID: letter.id}
        if step.what == "skip":
            said[names.SKIP] = "of no use"
            self.skipped.add((root, int(sequence)))
        self.queue.append(self.message(root, int(sequence), **said))

    def keep(self, step):
        self.open.append(step)
        try:
            self.keeper().turn()
        except Killed:
            self.deaths[step.dies] += 1
        finally:
            self.open.pop()
            self.collect()

    # -- as a process sees it ----------------------------------------------------------------

    def lanes(self):
        return ProcessLanes(self.model.lanes, self.die_at, {
            "look": "look", "run": "moved", "move": "moved", "park": "parked", "note": "noted",
            "released": "released",
        })  # fmt: skip

    def road(self):
        world, lanes = self.world, self.lanes()
        road = world.road()
        store = Process(world.store, self.die_at, {"claim": "claim", "settle": "settle"})
        schedule = Process(road.settler.schedule, self.die_at, {"put": "copy"})
        letters = Process(road.settler.dead_letters, self.die_at, {"put": "letter"})
        told = TellsTheOutbox(world.store.outbox)
        facts = Process(told, self.die_at, {"append": "fact", "carry": "fact"})
        ordering = dataclasses.replace(
            road.settler.ordering, lanes=lambda: lanes, schedule=schedule
        )
        claiming = dataclasses.replace(road.claimer, store=store)
        settler = dataclasses.replace(
            road.settler, store=store, schedule=schedule, dead_letters=letters, facts=facts,
            ordering=ordering,
        )  # fmt: skip
        return dataclasses.replace(road, claimer=claiming, ordering=ordering, settler=settler)

    def keeper(self):
        road = self.world.road()

        def publish(message):
            self.world.journal.schedule_put(message, self.world.clock.now())
            self.die_at("copy")

        return LaneKeeper(
            lanes=self.lanes(), handlers=[HANDLER], publish=publish, set_aside=_must_not,
            dead_letter=_must_not,
            heal=lambda _gap, _most, above_all: 0, observe=lambda _summaries, _gaps: None,
            facts=road.settler.facts, clock=self.world.clock, gap_after=timedelta(minutes=5),
            name="keeper", close=lambda: None,
        )  # fmt: skip

    def look_at(self):
        """See that each read model is made of what its lane has passed, in order, each once."""
        for root, place in zip(self.roots, self.places(), strict=True):
            kept = self.model.read(root)
            assert kept == sorted(set(kept)), (root, kept)
            missing = set(range(place)) - set(kept)
            assert all((root, sequence) in self.skipped for sequence in missing), (root, kept)
            assert max(kept, default=-1) < place, (root, kept, place)

    def look_at_the_facts(self):
        """See that they tell once how each event ended, or as often as it was begun anew.

        Each attempt that an end resolved was told before.
        """
        waiting = self.world.store.outbox.read(100_000)
        facts = {fact.id: fact for fact in (fact_from_text(one.text) for one in waiting)}
        ends = Counter(
            fact.event_id for fact in facts.values() if fact.subtype in ("handled", "skipped")
        )
        retries = {fact.resolves for fact in facts.values() if ":retried" in (fact.resolves or "")}
        assert retries <= facts.keys(), retries - facts.keys()
        events = [
            f"{root}/{sequence}"
            for root, count in zip(self.roots, self.counts, strict=True)
            for sequence in range(count)
        ]
        if self.resets:
            assert set(ends) == set(events), (ends, events)
        else:
            assert ends == dict.fromkeys(events, 1), (ends, events)

    # -- the end -----------------------------------------------------------------------------

    def drain(self):
        """Let all go well until nothing waits; what was given up is replayed."""
        for _ in range(400):
            self.world.clock.sleep(timedelta(seconds=40))  # leases of the keeper's end
            if self.queue:
                self.deliver(QUIET)
            elif self.given_up:
                self.answer(dataclasses.replace(QUIET, what="replay"))
            else:
                self.keep(QUIET)
                if not self.queue:
                    return
        pytest.fail(f"it goes on for ever: {self.queue}")

    def places(self):
        """Return where each lane is."""
        look = self.model.lanes.look
        return [look(Lane(HANDLER, Address(DOMAIN, root))).next_sequence for root in self.roots]


QUIET = Step("deliver", 0, None, "well", freed=False, meanwhile=None, pause=0)


def _must_not(_raw, error):
    raise error
