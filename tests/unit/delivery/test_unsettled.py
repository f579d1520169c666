"""What can never be settled holds no slot, does not run once more, and is not lost."""

from __future__ import annotations

from datetime import timedelta

import pytest

from angzarr.dead_letters.letter import Reason
from angzarr.delivery.delivery import DeadLettered, Handled, Postponed
from angzarr.delivery.retry_until_available import MOST_TRIES
from angzarr.errors import (
    BrokerUnavailable,
    GivenBack,
    GiveUp,
    Postpone,
    RetryLater,
    RevokedError,
    Skip,
    StoreUnavailable,
)
from angzarr.events import headers as names
from angzarr.resilience.backoff import Policy

NEVER = [
    KeyError("angzarr-replay-outcomes"), TypeError("ours"), AttributeError("ours"),
    BrokerUnavailable("404, no exchange", refused=True),
]  # fmt: skip
OFTEN = Policy(
    name="often", base=timedelta(seconds=1), max_delay=timedelta(seconds=1), max_attempts=9
)
#: What a handler does, and the step of settling that then goes wrong for ever.
STEPS = {
    "followers": (None, "followers", "publish"),
    "the fact of a success": (None, "facts", "append"),
    "the end of its claim": (None, "store", "settle"),
    "the copy of a retry": (RetryLater(9), "schedule", "put"),
    "the copy of a postponement": (Postpone(9), "schedule", "put"),
    "the fact of a skip": (Skip("no"), "facts", "append"),
}


class World:
    """A road of which one step fails for ever, until a letter is to be put or it is mended."""

    def __init__(self, world, monkeypatch, said):
        self.world, self.monkeypatch, self.ran = world, monkeypatch, []
        self.mended = False

        def handler(data, _context):
            self.ran.append(data)
            if said is not None:
                raise said

        world.handler(handler, policy=OFTEN)

    def take(self, part, verb, error, *, letters_fail=False, **headers):
        road = self.world.road()
        target = road.claimer.store if part == "store" else getattr(road.settler, part)
        works = getattr(target, verb)

        def fails(*args, **options):
            # A letter is what is left: its fact and the end of its claim are other calls.
            if self.mended or (self.world.journal.letters and not letters_fail):
                return works(*args, **options)
            raise error

        self.monkeypatch.setattr(type(target), verb, lambda _self, *args, **o: fails(*args, **o))
        if letters_fail:
            letters = type(road.settler.dead_letters)
            self.monkeypatch.setattr(letters, "put", lambda _self, *_args: fails())
        return road.take(self.world.delivery(**headers))


@pytest.fixture
def broken(world, monkeypatch):
    return lambda said: World(world, monkeypatch, said)


@pytest.mark.parametrize("error", NEVER, ids=repr)
@pytest.mark.parametrize("step", STEPS)
def test_an_outcome_that_can_never_be_made_true_is_a_letter_and_runs_once(broken, step, error):
    said, part, verb = STEPS[step]
    world = broken(said)
    began = world.world.clock.now()
    outcome = world.take(part, verb, error)
    assert isinstance(outcome, DeadLettered)
    assert world.ran == ["data"]
    assert world.world.clock.now() - began < timedelta(minutes=1)
    (letter,) = world.world.journal.letters
    assert (letter.reason, letter.error_code) == (Reason.REFUSED, "UNSETTLED")
    assert type(error).__name__ in letter.error_message


def test_a_fault_of_the_machine_makes_no_letter_however_long_it_lasts(broken):
    world = broken(None)
    for _ in range(5):  # no start is counted
        with pytest.raises(GivenBack, match="broke off"):
            world.take("facts", "append", MemoryError())
    assert world.world.journal.letters == []
    world.mended = True
    assert isinstance(world.take("facts", "append", MemoryError()), Handled)


@pytest.mark.parametrize("error", NEVER, ids=repr)
def test_where_the_letter_cannot_be_put_either_the_message_goes_back_and_it_is_said(
    broken, error, caplog
):
    """Its start stays counted, so that it does not come round for ever."""
    world = broken(None)
    for _ in range(3):
        with pytest.raises(GivenBack, match="broke off"):
            world.take("facts", "append", error, letters_fail=True)
    assert "gave_up" in caplog.text
    assert "given_back" in caplog.text
    world.monkeypatch.undo()
    assert world.world.take().letter.reason is Reason.POISON


def test_the_letter_of_what_no_handler_ran_says_why_however_often_it_could_not_be_put(
    broken, monkeypatch
):
    world = broken(None).world

    def fails(_self, *_args):
        raise KeyError("ours")

    with monkeypatch.context() as patch:
        patch.setattr(type(world.road().settler.dead_letters), "put", fails)
        for _ in range(5):
            with pytest.raises(GivenBack, match="broke off"):
                world.road().take(world.delivery(), RevokedError("revoked"))
    outcome = world.road().take(world.delivery(), RevokedError("revoked"))
    assert outcome.letter.reason is Reason.REVOKED


@pytest.mark.parametrize("error", NEVER, ids=repr)
@pytest.mark.parametrize(
    ("said", "word"), [(None, "handled"), (Skip("no"), "skipped"), (GiveUp("no"), "dead_lettered")]
)
def test_a_replay_that_can_never_be_answered_ends_all_the_same(broken, error, said, word, caplog):
    """Its entry is held at its deadline; it would run again, were it given back."""
    world = broken(said)
    replayed = {names.LETTER_ID: "l1", names.REPLAY: 1}
    outcome = world.take("replay_outcomes", "put", error, **replayed)
    # The letter of what gives up is put before its answer, which then works here.
    assert type(outcome) is not Postponed
    assert world.ran == ["data"]
    if said is None:
        assert isinstance(outcome, Handled)
    if not isinstance(said, GiveUp):
        assert "replay_not_answered" in caplog.text
        assert word in caplog.text
    world.mended = True
    assert world.world.take(**replayed) is not None
    assert world.ran == ["data"], "its claim has ended"


def test_a_replay_waits_for_its_answer_while_the_broker_is_away(broken):
    world = broken(None)
    tries = []

    def away():
        tries.append(1)
        world.mended = len(tries) > 5 * MOST_TRIES
        return BrokerUnavailable("away")

    road = world.world.road()
    put = type(road.settler.replay_outcomes).put

    def flaky(self, outcome):
        error = away()
        if not world.mended:
            raise error
        put(self, outcome)

    world.monkeypatch.setattr(type(road.settler.replay_outcomes), "put", flaky)
    delivery = world.world.delivery(**{names.LETTER_ID: "l1", names.REPLAY: 1})
    assert isinstance(road.take(delivery), Handled)
    assert [told.letter_id for told in world.world.journal.replayed] == ["l1"]


def test_a_store_that_is_away_is_waited_for_by_every_step(broken):
    world = broken(None)
    tries = []

    def fails(*args, **options):
        tries.append(args)
        if len(tries) <= 5 * MOST_TRIES:
            raise StoreUnavailable("away")
        return works(*args, **options)

    road = world.world.road()
    works = road.settler.facts.append
    facts = type(road.settler.facts)
    world.monkeypatch.setattr(facts, "append", lambda _self, *args, **o: fails(*args, **o))
    assert isinstance(road.take(world.world.delivery()), Handled)
