"""A source is asked anew: counted first, told under an id of its own, and never in vain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from pydantic import BaseModel
from tests.contracts.rejections import a_rejection
from tests.hand_clock import HandClock

from angzarr.adapters.memory.event_store import MemoryEventBooks, MemoryRejectionLog
from angzarr.adapters.memory.facts import MemoryFactLog
from angzarr.aggregates.aggregate import Aggregate
from angzarr.aggregates.book import Address, Decision, Write
from angzarr.aggregates.command import id_after
from angzarr.aggregates.decorators import applies, rejected
from angzarr.errors import BrokerUnavailable, CompensationFailed
from angzarr.events.event import Event
from angzarr.facts.act_log import ActLog
from angzarr.sagas.compensating import Compensating, CompensationTurn
from angzarr.sagas.log import MAX_TEXT, SETTLED, RejectionStatus, case_of
from angzarr.sagas.rejection import Rejection, from_event, to_event
from angzarr.sagas.rejection_answers import CompensationStep, Flags
from angzarr.sagas.renotification import PATIENCE, NotAsked, Renotifier, under_way
from angzarr.sagas.story import story_of

PLAYER = Address("player", "p-1")


class Released(BaseModel):
    amount: int


class Reserved(BaseModel):
    amount: int


class Funds(BaseModel):
    reserved: int = 0


#: What the source does; tests change it.
@dataclass
class Mood:
    answer: object = None


class Player(Aggregate[Funds]):
    domain = "player"
    mood = Mood()

    @rejected("table", "SeatPlayer")
    def refused(self, _context: object) -> object:
        if isinstance(self.mood.answer, Exception):
            raise self.mood.answer
        return self.mood.answer

    @applies(Reserved)
    def on_reserved(self, event: Reserved) -> None:
        self.state.reserved += event.amount

    @applies(Released)
    def on_released(self, event: Released) -> None:
        self.state.reserved -= event.amount


@dataclass
class Sent:
    """An outbox that remembers."""

    told: list[Event] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    escalated: list[str] = field(default_factory=list)
    away: bool = False

    def publish(self, events: Sequence[Event], _sealed: object = None, /) -> None:
        self.events += events

    def send(self, commands: Sequence[object], /) -> None:
        assert not commands

    def tell(self, rejection: Rejection, asked: int = 0, /) -> None:
        if self.away:
            raise BrokerUnavailable("the broker is away")
        self.told.append(to_event(rejection, asked))

    def escalate(self, _rejection: Rejection, reason: str, /) -> None:
        self.escalated.append(reason)


class Meters:
    def ended(self, saga: str, status: RejectionStatus, seconds: float) -> None:
        pass


class World:
    """A source, its book, and a rejection that it failed to compensate."""

    def __init__(self) -> None:
        self.clock, self.sent, self.facts = HandClock(), Sent(), MemoryFactLog()
        self.books, self.log = MemoryEventBooks(), MemoryRejectionLog()
        self.rejection = replace(a_rejection(sequence=0), rejected_at=self.clock.now())
        self.asking = Renotifier(
            log=self.log, outbox=self.sent, acts=self.acts_to(self.facts), clock=self.clock
        )
        self.compensating = Compensating(
            books=self.books, log=self.log, outbox=self.sent, meters=Meters(), clock=self.clock,
            chance=lambda: 0.5, fallback=Flags(escalate=True, emit_system_revocation=True),
            domain="failures",
        )  # fmt: skip
        reserved = Event(id="because", type="Reserved", data={"amount": 5})
        self.books.write(Write(address=PLAYER, decision=Decision(cause="c", events=(reserved,))))
        self.log.note(case_of(self.rejection, self.clock.now()))

    def acts_to(self, facts):
        return ActLog(facts=lambda: facts, clock=self.clock)

    def answers(self, answer: object, told: Event | None = None) -> None:
        """Deliver what the source was told, which answers so."""
        Player.mood.answer = answer
        told = told or to_event(self.rejection)
        turn = CompensationTurn(
            id=id_after(told.id, "flags", 0), is_final=lambda _error: True, max_depth=50
        )
        self.compensating.compensate(Player, from_event(told), turn)

    def ask(self, **said: str):
        return self.asking.ask(self.case, by="kim@desk", **said)

    @property
    def case(self):
        (case,) = self.log.look(self.rejection.id)
        return case

    def types(self) -> list[str]:
        return [event.type for event in self.books.read(PLAYER, whole=True).book.events]


@pytest.fixture
def world():
    return World()


def test_a_source_is_told_the_same_again_under_another_id(world):
    world.answers(LookupError("no rate"))
    world.ask()
    world.ask()
    first, second = world.sent.told
    assert len({first.id, second.id, world.rejection.id}) == 3
    assert from_event(first) == from_event(second) == world.rejection


def test_two_askings_that_are_both_answered_compensate_once(world):
    world.answers(LookupError("no rate"))
    world.ask()
    world.ask()
    for told in world.sent.told:
        world.answers(Released(amount=5), told)
    assert world.types() == ["Reserved", "Released"]
    ids = [event.id for event in world.sent.events if event.type == "Released"]
    assert len(ids) == 2  # a delivery that comes again sends again
    assert len(set(ids)) == 1
    assert (world.case.status, world.case.first_event) == (RejectionStatus.COMPENSATED, 1)


def test_an_old_notification_that_comes_after_the_asking_compensates_no_second_time(world):
    world.answers(LookupError("no rate"))
    world.ask()
    world.answers(Released(amount=5), world.sent.told[0])
    world.answers(Released(amount=7))
    assert world.types() == ["Reserved", "Released"]


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (LookupError("no rate"), RejectionStatus.FAILED),
        (Flags(reason="nothing to undo"), RejectionStatus.DECLINED),
        (Flags(emit_system_revocation=True), RejectionStatus.REVOKED),
    ],
)
def test_whoever_ended_without_compensating_is_asked(world, answer, status):
    world.answers(answer)
    assert world.case.status is status
    asked = world.ask(note="mended")
    assert (asked.status, asked.asked_again) == (RejectionStatus.TOLD, 1)
    assert (asked.asked_by, asked.note) == ("kim@desk", "mended")
    assert len(world.sent.told) == 1


def test_an_aborted_case_may_be_asked_about(world):
    with pytest.raises(CompensationFailed):
        world.answers(Flags(abort=True))
    assert world.case.status is RejectionStatus.ABORTED
    assert world.ask().asked_again == 1


def test_a_source_that_fails_for_another_reason_is_told_of_as_another_failure(world):
    world.answers(LookupError("no rate"))
    world.ask()
    world.answers(LookupError("no table"), world.sent.told[0])
    world.ask()
    world.answers(LookupError("no table"), world.sent.told[1])
    first, second, third = (event.id for event in world.sent.events)
    assert first != second
    assert second == third
    assert world.sent.escalated == ["LookupError: no rate", *["LookupError: no table"] * 2]


@pytest.mark.parametrize("status", sorted(SETTLED))
def test_nobody_asks_about_what_is_settled(world, status):
    world.log.note(replace(world.case, status=status))
    with pytest.raises(NotAsked, match=f"is {status}"):
        world.ask()
    assert world.sent.told == []


def test_who_is_overtaken_by_a_compensation_asks_nobody(world):
    world.answers(LookupError("no rate"))
    seen = world.case
    world.answers(Released(amount=5), told=to_event(world.rejection, 1))
    with pytest.raises(NotAsked, match="its source compensated"):
        world.asking.ask(seen, by="kim@desk")
    assert world.sent.told == []
    assert world.case.status is RejectionStatus.COMPENSATED


@pytest.mark.parametrize(
    ("kept", "said"), [(None, "replay its dead letter"), ({"data": 7}, "cannot be sent again")]
)
def test_what_is_not_kept_whole_cannot_be_told(world, kept, said):
    world.answers(LookupError("no rate"))
    case = replace(world.case, rejection=kept)
    with pytest.raises(NotAsked, match=said):
        world.asking.ask(case, by="kim@desk")
    assert world.case.asked_again == 0


def test_a_broker_that_is_away_loses_nothing(world):
    world.answers(LookupError("no rate"))
    world.sent.away = True
    with pytest.raises(BrokerUnavailable):
        world.ask()
    world.sent.away = False
    assert world.ask().asked_again == 2
    assert len(world.sent.told) == 1


def test_a_case_that_is_gone_is_said_to_be(world):
    case = replace(world.case, id="another")
    with pytest.raises(NotAsked, match="removed meanwhile"):
        world.asking.ask(case, by="kim@desk")


def test_who_asked_is_a_fact_each_time(world):
    world.answers(LookupError("no rate"))
    world.ask(note="mended")
    world.clock.sleep(timedelta(seconds=1))
    world.ask()
    begun, first, _, second = world.facts.read()
    assert (begun.subtype, first.resolves) == ("act_begun", begun.id)
    assert (first.subtype, first.entity_id) == ("compensation_asked_again", "p-1")
    assert (first.data["by"], first.data["reason"]) == ("kim@desk", "mended")
    assert (second.data["asked_again"], second.data["reason"]) == (2, None)


def test_a_fact_that_cannot_be_written_stops_nobody(world, caplog):
    class Broken(MemoryFactLog):
        def append(self, _facts, /, *, before_ack=False):
            raise OSError("disk full")

    world.answers(LookupError("no rate"))
    asking = replace(world.asking, acts=world.acts_to(Broken()))
    assert asking.ask(world.case, by="kim@desk").asked_again == 1
    assert "fact_not_appended" in caplog.text


def test_a_source_is_given_some_minutes_to_answer(world):
    now = world.case.changed_at
    assert under_way(world.case, now + PATIENCE - timedelta(seconds=1))
    assert not under_way(world.case, now + PATIENCE)
    assert not under_way(replace(world.case, status=RejectionStatus.FAILED), now)


# -- stories ---------------------------------------------------------------------------------------


def test_a_story_tells_the_event_the_command_and_what_compensates(world):
    world.answers(Released(amount=5))
    story = story_of(world.books, world.case)
    assert story.rejection == world.rejection
    assert (story.trigger.id, story.trigger.sequence) == ("because", 0)
    assert [(event.type, event.sequence) for event in story.compensation] == [("Released", 1)]
    assert (story.escalation, story.failure) == ("", "")


@pytest.mark.parametrize("events", [[Released(amount=5)], []])
def test_a_story_names_what_was_sent_besides_by_the_ids_that_it_was_sent_under(world, events):
    flags = Flags(emit_system_revocation=True, reason="x" * 5000)
    world.answers((events, flags) if events else flags)
    assert world.case.steps == (CompensationStep.REVOKE,)
    assert world.case.answer == "x" * MAX_TEXT
    sent = world.sent.events[-1]
    assert sent.type == "angzarr.SagaCompensationFailed"
    assert story_of(world.books, world.case).failure == sent.id


@pytest.mark.parametrize("sequence", [1, 99])
def test_an_event_of_another_book_is_not_taken_for_the_one_that_set_it_off(world, sequence):
    world.answers(Released(amount=5))
    case = replace(world.case, source_sequence=sequence)
    assert story_of(world.books, case).trigger is None


def test_a_story_without_a_rejection_tells_what_is_left(world):
    world.answers(Released(amount=5))
    for kept in (None, {"data": 7}):
        story = story_of(world.books, replace(world.case, rejection=kept))
        assert (story.rejection, story.trigger) == (None, None)
        assert len(story.compensation) == 1
