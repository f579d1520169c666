"""What deliveries of commands, notifications and saga events do, and what a death leaves."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from tests.chain_world import World, a_command, a_rejection, address
from tests.hand_clock import START

from angzarr.aggregates.aggregate import Aggregate
from angzarr.aggregates.book import Decision, Write
from angzarr.aggregates.command import MergeStrategy, Origin
from angzarr.aggregates.decorators import applies, handles, merge_strategy, reacts_to, rejected
from angzarr.delivery.sealed_origin import SealedOrigin
from angzarr.errors import (
    BrokerUnavailable,
    ChainTooDeep,
    CommandAbortedError,
    CommandRejectedError,
    DecodeError,
    InvalidRoot,
    NotAnEvent,
    Postpone,
    PublishIncomplete,
    SequenceConflictError,
    SequenceMismatch,
    Skip,
    StoreUnavailable,
    UnknownCommand,
)
from angzarr.events.event import Event, Priority
from angzarr.events.headers import TENANT_ID
from angzarr.events.publication import NotAllPublished
from angzarr.payloads.claim_check import HEADER
from angzarr.payloads.store import SEALED_ENCODING
from angzarr.sagas.command_handlers import AWAY, LONGEST_WAIT
from angzarr.sagas.log import RejectionStatus
from angzarr.sagas.rejection import CompensationContext, from_event, read_rejection
from angzarr.sagas.rejection_answers import Flags, notification_of
from angzarr.sagas.saga import ProcessManager, Saga, Send


class Reserve(BaseModel):
    amount: int = 5


class Seat(BaseModel):
    player_id: str = "p-1"


class Leave(BaseModel):
    player_id: str = "p-1"


class Reserved(BaseModel):
    amount: int = 5


class Released(BaseModel):
    amount: int = 5


class Seated(BaseModel):
    player_id: str = "p-1"


class Left(BaseModel):
    player_id: str = "p-1"


class Funds(BaseModel):
    reserved: int = 0


class Seats(BaseModel):
    taken: list[str] = []


def players(answer=None):
    class Player(Aggregate[Funds]):
        @handles(Reserve)
        def reserve(self, command: Reserve) -> Reserved:
            return Reserved(amount=command.amount)

        @applies(Reserved)
        def on_reserved(self, event: Reserved) -> None:
            self.state.reserved += event.amount

        @applies(Released)
        def on_released(self, event: Released) -> None:
            self.state.reserved -= event.amount

        @rejected("table", Seat)
        def refused(self, context: CompensationContext) -> object:
            return answer(self, context) if callable(answer) else answer

    return Player


class Table(Aggregate[Seats]):
    """It has two chairs."""

    @handles(Seat)
    def seat(self, command: Seat) -> Seated:
        if len(self.state.taken) > 1:
            raise CommandRejectedError("full")
        return Seated(player_id=command.player_id)

    @handles("Strict")
    @merge_strategy(MergeStrategy.STRICT)
    def strict(self, _command: object) -> Seated:
        return Seated()

    @handles("Manual")
    @merge_strategy(MergeStrategy.MANUAL)
    def manual(self, _command: object) -> Seated:
        return Seated()

    @handles("Free")
    @merge_strategy(MergeStrategy.AGGREGATE_HANDLES)
    def free(self, _command: object) -> Seated:
        return Seated()

    @handles(Leave)
    def leave(self, _command: Leave) -> None:
        return None

    @applies(Seated)
    def on_seated(self, event: Seated) -> None:
        self.state.taken.append(event.player_id)


class Room(Aggregate[Seats]):
    """It has a chair for everybody."""

    @handles(Seat)
    def seat(self, command: Seat) -> Seated:
        return Seated(player_id=command.player_id)


class Seating(Saga):
    @reacts_to(Reserved)
    def ask(self, event: Reserved) -> Send:
        return Send(Seat(player_id=str(self.event.root)), domain="table", root="t-1")


ORIGIN = Origin(saga="seating", source=address(), sequence=0)
FLOW = {
    "correlation_id": "flow", "tenant_id": "acme", "priority": Priority.REALTIME,
    "config_pins": {"rules": "7"}, "traceparent": "00-a-b-01",
}  # fmt: skip


def world_of(answer=None, **options):
    world = World(**options)
    world.aggregate(players(answer), "player")
    world.aggregate(Table, "table")
    return world


def full(world):
    """Let two others sit down."""
    for index in range(2):
        world.command(a_command(Seat(player_id=f"o-{index}"), "table", "t-1", id=f"o-{index}"))
    world.outbox.sent.clear()
    world.steps.names.clear()
    return world


def named(kind, expected=None, **fields):
    """Return a command of the type *kind*, which has no data."""
    command = a_command(Leave(), "table", "t-1", **fields)
    return replace(command, event=replace(command.event, type=kind, sequence=expected))


# -- commands ------------------------------------------------------------------------------------


def test_a_command_that_is_accepted_is_kept_and_its_events_are_published():
    world = world_of()
    command = a_command(Reserve(), "player", "p-1", depth=2, **FLOW)
    assert world.command(command) == {"events": 1, "first_sequence": 0}
    (event,) = world.outbox.of("event")
    assert (event.type, event.domain, event.root, event.sequence) == (
        "Reserved",
        "player",
        "p-1",
        0,
    )
    assert (event.causation_id, event.depth) == ("c-1", 3)
    assert {name: getattr(event, name) for name in FLOW} == FLOW
    assert world.events() == [("Reserved", {"amount": 5})]


def test_a_command_that_leads_to_nothing_is_accepted_all_the_same():
    world = world_of()
    assert world.command(a_command(Leave(), "table", "t-1")) == {
        "events": 0, "first_sequence": None,
    }  # fmt: skip
    assert world.outbox.sent == []


def test_a_command_that_comes_again_publishes_again_and_appends_nothing():
    world = world_of()
    for _ in range(2):
        assert world.command(a_command(Reserve(), "player", "p-1")) == {
            "events": 1, "first_sequence": 0,
        }  # fmt: skip
    one, two = world.outbox.of("event")
    assert one == two
    assert len(world.events()) == 1


def test_a_rejection_is_told_to_the_source_and_is_no_failure():
    world = full(world_of())
    command = a_command(Seat(), "table", "t-1", origin=ORIGIN, depth=2, **FLOW)
    with pytest.raises(Skip, match="rejected, and player/p-1 is told: full"):
        world.command(command)
    (event,) = world.outbox.of("notification")
    told = from_event(event)
    assert (told.origin, told.reason) == (ORIGIN, "full")
    assert (told.rejected_at, told.command.event) == (world.clock.now(), command.event)
    case = world.case()
    assert (case.status, case.reason, case.saga) == (RejectionStatus.TOLD, "full", "seating")
    assert world.meters.rejections == [("seating", "table")]


def test_a_rejection_without_origin_is_raised_and_told_to_nobody():
    world = full(world_of())
    with pytest.raises(CommandRejectedError, match="full"):
        world.command(a_command(Seat(), "table", "t-1"))
    assert world.outbox.sent == []
    assert world.log.look("") == []
    assert world.meters.rejections == []


@pytest.mark.parametrize(
    "odd",
    [{"angzarr-saga": ""}, {"angzarr-source-domain": 7}, {"angzarr-source-root": None},
     {"angzarr-source-sequence": "x"}, {"angzarr-source-sequence": -1},
     {"angzarr-source-domain": "No Domain"}, {"angzarr-source-root": "x" * 256},
     {"angzarr-source-root": "\x00"}, {"angzarr-source-edition": "\ud800"}],
    ids=repr,
)  # fmt: skip
def test_an_origin_that_is_not_all_there_is_none(odd):
    world = full(world_of())
    headers = {
        "angzarr-saga": "seating", "angzarr-source-domain": "player",
        "angzarr-source-root": "p-1", "angzarr-source-sequence": 0,
    }  # fmt: skip
    event = a_command(Seat(), "table", "t-1").event
    with pytest.raises(CommandRejectedError):
        world.chains.carry_out(world.context(event, headers | odd))
    assert world.outbox.sent == []


def test_a_rejected_command_that_comes_again_says_the_very_same():
    """Another body under the same id would be taken for a conflict, and be a dead letter."""
    world = full(world_of())
    command = a_command(Seat(), "table", "t-1", origin=ORIGIN)
    for _ in range(2):
        with pytest.raises(Skip):
            world.command(command)
        world.clock.sleep(AWAY)
    one, two = world.outbox.of("notification")
    assert one == two


def test_a_rejection_stands_though_there_is_room_when_it_comes_again():
    """Its source was told of it, and may have undone what it did."""
    world = full(world_of())
    command = a_command(Seat(), "table", "t-1", origin=ORIGIN)
    with pytest.raises(Skip):
        world.command(command)
    world.aggregate(Room, "table")
    with pytest.raises(Skip, match="full"):
        world.command(command)
    world.command(a_command(Seat(), "table", "t-1", id="c-9"))


@pytest.mark.parametrize("strategy", ["Strict", "Manual"])
def test_a_stale_command_that_does_not_commute_changes_nothing(strategy):
    world = full(world_of())
    with pytest.raises((CommandAbortedError, SequenceMismatch)) as caught:
        world.command(named(strategy, expected=1, origin=ORIGIN))
    assert world.outbox.sent == [], "it was not rejected, so no source is told"
    assert len(world.events("table", "t-1")) == 2
    error = caught.value
    assert isinstance(error, SequenceMismatch) is (strategy == "Manual")
    assert (error.expected, error.actual) == (1, 2)


def test_a_letter_for_review_says_what_was_to_be_decided():
    with pytest.raises(SequenceMismatch) as caught:
        full(world_of()).command(named("Manual", expected=1))
    error = caught.value
    assert str(error) == "expected sequence 1, the aggregate is at 2"
    assert (error.strategy, error.letter_reason) == (MergeStrategy.MANUAL, "sequence_mismatch")


@pytest.mark.parametrize("kind", ["Strict", "Manual", "Free", "Seat"])
def test_a_command_that_expects_what_is_there_is_carried_out(kind):
    world = world_of()
    command = named(kind, expected=0)
    assert world.command(command)["events"] == 1


def test_the_aggregate_may_see_to_a_stale_command_itself():
    assert full(world_of()).command(named("Free", expected=1)) == {
        "events": 1, "first_sequence": 2,
    }  # fmt: skip


def test_a_stale_command_that_commutes_is_decided_on_what_is_there_now():
    world = world_of()
    world.command(a_command(Seat(player_id="o-1"), "table", "t-1", id="o-1"))
    assert world.command(named("Seat", expected=0)) == {"events": 1, "first_sequence": 1}


def test_a_stale_command_that_commutes_may_be_rejected_then():
    world = full(world_of())
    with pytest.raises(Skip, match="full"):
        world.command(named("Seat", expected=0, origin=ORIGIN))
    assert len(world.outbox.of("notification")) == 1


def overtaken(world, times):
    """Let others append to the table before each of the next *times* writes; count all writes."""
    write, count = world.books.write, 0

    def late(wanted, /):
        nonlocal count
        count += 1
        if count <= times:
            other = Event(id=f"o-{count}", type="Noise", data={})
            write(Write(address=wanted.address, decision=Decision(cause=f"o-{count}",
                                                                  events=(other,))))  # fmt: skip
        return write(wanted)

    world.books.write = late
    return lambda: count


@pytest.mark.parametrize("kind", ["Strict", "Manual", "Seat"])
def test_a_command_that_expects_nothing_is_retried_where_others_are_quicker(kind):
    """It holds of whatever is there, so it is never out of date."""
    world = world_of()
    tries = overtaken(world, 10)
    with pytest.raises(SequenceConflictError, match="went on 10 times") as caught:
        world.command(named(kind))
    assert tries() == 10
    assert not world.context(named(kind).event).is_final(caught.value)
    assert world.command(named(kind)) == {"events": 1, "first_sequence": 10}


def test_a_stale_command_that_always_loses_comes_to_an_end():
    world = world_of()
    world.command(a_command(Seat(player_id="o-1"), "table", "t-1", id="o-0"))
    overtaken(world, 99)
    with pytest.raises(SequenceConflictError, match="went on 10 times"):
        world.command(named("Seat", expected=0))


def test_a_stale_command_is_decided_on_the_snapshot():
    """A book may be long: only what says that it is stale shows all of it."""
    world = world_of()
    world.command(a_command(Seat(player_id="o-1"), "table", "t-1", id="o-1"))
    read, wholes = world.books.read, []

    def counting(place, /, *, cause=None, whole=False):
        wholes.append(whole)
        return read(place, cause=cause, whole=whole)

    world.books.read = counting
    world.command(named("Seat", expected=0))
    assert wholes == [False, True, False]


@pytest.mark.parametrize(
    ("domain", "kind", "why"),
    [("table", "Nonsense", "handles no 'Nonsense'"), ("bank", "Seat", "known are: player, table")],
)
def test_a_command_that_nobody_takes_says_so(domain, kind, why):
    command = named(kind)
    command = replace(command, event=replace(command.event, domain=domain))
    with pytest.raises(UnknownCommand, match=why):
        world_of().command(command)


def test_data_that_does_not_fit_is_refused():
    command = a_command(Reserve(), "player", "p-1")
    with pytest.raises(DecodeError, match="amount"):
        world_of().command(replace(command, event=replace(command.event, data={"amount": "x"})))


def test_a_root_that_no_store_could_keep_is_refused():
    with pytest.raises(InvalidRoot):
        world_of().command(a_command(Reserve(), "player", "x" * 256))


# -- what is away --------------------------------------------------------------------------------

NOT_ALL = NotAllPublished([], [Event(id="e", type="t", data={})], [], ["h"], "away")
AWAYS = [StoreUnavailable("away"), BrokerUnavailable("away"), NOT_ALL,
         PublishIncomplete("e-1", ["h"], "away")]  # fmt: skip


def broken(world, step, error):
    """Let the first *step* of *world* fail."""
    healthy, names = world.steps, []

    def steps(name):
        names.append(name)
        if name == step and names.count(step) == 1:
            raise error
        healthy(name)

    world.books.steps = world.log.steps = world.outbox.steps = steps


@pytest.mark.parametrize("error", AWAYS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("step", ["write", "written", "send event", "sent event"])
def test_a_command_waits_for_what_is_away_and_uses_no_attempt(step, error):
    world = world_of()
    broken(world, step, error)
    with pytest.raises(Postpone) as caught:
        world.command(a_command(Reserve(), "player", "p-1"))
    assert caught.value.delay == AWAY
    assert str(error) in str(caught.value)
    assert world.command(a_command(Reserve(), "player", "p-1")) == {
        "events": 1, "first_sequence": 0,
    }  # fmt: skip
    assert len(world.events()) == 1


@pytest.mark.parametrize("step", ["note", "noted", "send notification", "sent notification"])
def test_a_rejection_waits_for_what_is_away(step):
    world = full(world_of())
    broken(world, step, StoreUnavailable("away"))
    command = a_command(Seat(), "table", "t-1", origin=ORIGIN)
    with pytest.raises(Postpone):
        world.command(command)
    world.clock.sleep(AWAY)
    with pytest.raises(Skip):
        world.command(command)
    assert len(set(map(repr, world.outbox.of("notification")))) == 1


@pytest.mark.parametrize("step", ["send command", "sent command"])
def test_a_saga_waits_for_what_is_away(step):
    world = world_of()
    world.saga(Seating, "seating")
    broken(world, step, BrokerUnavailable("away"))
    event = Event(id="e-1", type="Reserved", data={}, domain="player", root="p-1", sequence=0)
    with pytest.raises(Postpone):
        world.reacting.react(Seating, world.context(event))
    assert world.reacting.react(Seating, world.context(event)) == 1
    assert len(set(map(repr, world.outbox.of("command")))) == 1


@pytest.mark.parametrize(("waited", "raised"), [
    (LONGEST_WAIT, Postpone), (LONGEST_WAIT + timedelta(seconds=1), BrokerUnavailable),
])  # fmt: skip
def test_what_looks_as_if_it_were_away_is_not_waited_for_for_ever(waited, raised):
    world = world_of()
    world.saga(Seating, "seating")
    broken(world, "send command", BrokerUnavailable("refused"))
    event = Event(id="e-1", type="Reserved", data={}, domain="player", root="p-1", sequence=0)
    context = world.context(event)
    began = world.clock.now() - waited
    context = replace(context, delivery=replace(context.delivery, first_attempt_at=began))
    with pytest.raises(raised):
        world.reacting.react(Seating, context)


# -- sagas ---------------------------------------------------------------------------------------


def react(world, kind, **event):
    said = {"id": "e-1", "type": "Reserved", "data": {}, "domain": "player", "root": "p-1",
            "sequence": 3} | event  # fmt: skip
    return world.reacting.react(kind, world.context(Event(**said)))


def test_a_saga_sends_its_commands_in_the_flow_of_the_event():
    world = world_of()
    world.saga(Seating, "seating")
    assert react(world, Seating, depth=2, **FLOW) == 1
    (sent,) = world.outbox.sent
    event = sent.event
    assert (event.type, event.domain, event.root) == ("Seat", "table", "t-1")
    assert (event.causation_id, event.depth, event.sequence) == ("e-1", 3, None)
    assert {name: getattr(event, name) for name in FLOW} == FLOW
    assert sent.headers == {
        "angzarr-saga": "seating", "angzarr-source-domain": "player",
        "angzarr-source-root": "p-1", "angzarr-source-sequence": 3,
    }  # fmt: skip


@pytest.mark.parametrize("missing", ["domain", "root", "sequence"])
def test_nobody_hears_of_commands_for_an_event_without_a_place(missing):
    world = world_of()
    world.saga(Seating, "seating")
    react(world, Seating, **{missing: None})
    (sent,) = world.outbox.sent
    assert sent.headers == {}


def test_the_edition_of_the_event_is_that_of_its_commands_unless_told_otherwise():
    class Both(Saga):
        @reacts_to(Reserved)
        def ask(self, _event: Reserved) -> list[Send]:
            return [
                Send(Seat(), domain="table", root="t-1"),
                Send(Seat(), domain="table", root="t-1", edition=""),
                Send(Seat(), domain="table", root="t-1", edition="other", expected=4),
            ]

    world = world_of()
    world.saga(Both, "both")
    assert react(world, Both, edition="what-if") == 3
    assert [event.edition for event in world.outbox.of("command")] == ["what-if", None, "other"]
    assert [event.sequence for event in world.outbox.of("command")] == [None, None, 4]
    assert len({event.id for event in world.outbox.of("command")}) == 3
    assert {one.headers["angzarr-source-edition"] for one in world.outbox.sent} == {"what-if"}


def saga_answering(answer):
    class Odd(Saga):
        @reacts_to(Reserved)
        def ask(self, _event: Reserved) -> object:
            return answer

    return Odd


@pytest.mark.parametrize("answer", [None, [], ()], ids=repr)
def test_a_saga_may_answer_nothing(answer):
    world = world_of()
    kind = world.saga(saga_answering(answer), "odd")
    assert react(world, kind) == 0


@pytest.mark.parametrize(
    "answer",
    [Seated(), [Send(Seat(), domain="table", root="t-1"), Seated()], {}, "text", 0, [None],
     Flags()],
    ids=repr,
)  # fmt: skip
def test_a_saga_that_answers_otherwise_sends_nothing(answer):
    world = world_of()
    kind = world.saga(saga_answering(answer), "odd")
    with pytest.raises(TypeError, match="a saga returns Send, or nothing"):
        react(world, kind)
    assert world.outbox.sent == []


@pytest.mark.parametrize(
    "payload", [{}, "Seat", 7, None, Seat, Send(Seat(), domain="x", root="x"), Flags()]
)
def test_a_saga_that_sends_what_is_no_command_is_refused(payload):
    world = world_of()
    kind = world.saga(saga_answering(Send(payload, domain="table", root="t-1")), "odd")
    with pytest.raises(NotAnEvent, match="is not an event or command"):
        react(world, kind)
    assert world.outbox.sent == []


@pytest.mark.parametrize(
    "send", [Send(Seat(), domain="table", root=""), Send(Seat(), domain="table", root="x\n")]
)
def test_a_saga_that_sends_to_no_place_is_refused(send):
    world = world_of()
    kind = world.saga(saga_answering(send), "odd")
    with pytest.raises(InvalidRoot):
        react(world, kind)


@pytest.mark.parametrize("odd", [Send(Seat(), domain="table", root="t-1"), Flags()])
@pytest.mark.parametrize("among", [lambda one: one, lambda one: [Seated(), one]])
def test_what_is_for_sagas_is_no_event_of_an_aggregate(odd, among):
    """It would be kept in the book for ever, and the command be sent to nobody."""

    class Confused(Aggregate[Seats]):
        @handles(Seat)
        def seat(self, _command: Seat) -> object:
            return among(odd)

    world = world_of()
    world.aggregate(Confused, "table")
    with pytest.raises(NotAnEvent, match=f"{type(odd).__name__} is not an event or command but"):
        world.command(a_command(Seat(), "table", "t-1"))
    assert world.events("table", "t-1") == []


def test_flags_are_no_answer_of_a_process_to_an_event():
    class Confused(ProcessManager[Seats]):
        @reacts_to(Reserved)
        def start(self, _event: Reserved) -> Flags:
            return Flags(abort=True)

    world = world_of()
    world.manager(Confused, "confused")
    with pytest.raises(NotAnEvent, match="Flags is not an event"):
        managed(world, Confused)
    assert world.events("confused", "e-1") == []


# -- process managers ----------------------------------------------------------------------------


class Started(BaseModel):
    amount: int = 0


class Progress(BaseModel):
    started: int = 0


class Fulfilment(ProcessManager[Progress]):
    @reacts_to(Reserved)
    def start(self, event: Reserved) -> list[object]:
        return [Started(amount=event.amount), Send(Seat(), domain="table", root="t-1")]

    @applies(Started)
    def on_started(self, _event: Started) -> None:
        self.state.started += 1


class ByPlayer(Fulfilment):
    @classmethod
    def root_of(cls, event: Event) -> str:
        return f"of {event.root}"


def managed(world, kind, **event):
    said = {"id": "e-1", "type": "Reserved", "data": {}, "domain": "player", "root": "p-1",
            "sequence": 3} | event  # fmt: skip
    return world.chains.manage(kind, world.context(Event(**said)))


def test_a_process_records_what_it_does_in_its_own_book():
    world = world_of()
    world.manager(Fulfilment, "fulfilment")
    assert managed(world, Fulfilment, **FLOW) == {"events": 1, "first_sequence": 0}
    assert world.events("fulfilment", "flow") == [("Started", {"amount": 5})]
    assert [one.what for one in world.outbox.sent] == ["event", "command"]
    sent = world.outbox.sent[-1]
    assert sent.headers == {
        "angzarr-saga": "fulfilment", "angzarr-source-domain": "fulfilment",
        "angzarr-source-root": "flow", "angzarr-source-sequence": 0,
    }  # fmt: skip
    assert {name: getattr(sent.event, name) for name in FLOW} == FLOW


@pytest.mark.parametrize(
    ("kind", "fields", "root"),
    [(Fulfilment, {"correlation_id": "flow"}, "flow"), (Fulfilment, {}, "e-1"),
     (ByPlayer, {"correlation_id": "flow"}, "of p-1")],
)  # fmt: skip
def test_a_process_is_found_by_its_flow_unless_it_says_by_what(kind, fields, root):
    world = world_of()
    world.manager(kind, "fulfilment")
    managed(world, kind, **fields)
    assert len(world.events("fulfilment", root)) == 1


def test_the_edition_of_the_event_is_that_of_the_process():
    world = world_of()
    world.manager(Fulfilment, "fulfilment")
    managed(world, Fulfilment, edition="what-if")
    assert len(world.events("fulfilment", "e-1", "what-if")) == 1


def test_an_event_that_comes_again_after_a_crash_sends_the_same_commands():
    world = world_of()
    world.manager(Fulfilment, "fulfilment")
    broken(world, "send command", BrokerUnavailable("away"))
    with pytest.raises(Postpone):
        managed(world, Fulfilment)
    for _ in range(2):
        assert managed(world, Fulfilment)["events"] == 1
    assert len(world.events("fulfilment", "e-1")) == 1
    one, two = world.outbox.of("command")
    assert one == two


def test_a_process_is_not_asked_again_about_an_event_that_it_decided():
    """By its state it would say something else now, or fail."""

    class Once(Fulfilment):
        @reacts_to(Reserved)
        def start(self, _event: Reserved) -> Started:
            if self.state.started:
                raise KeyError("started")
            return Started()

    world = world_of()
    world.manager(Once, "once")
    assert managed(world, Once) == managed(world, Once)
    assert len(world.events("once", "e-1")) == 1


def test_a_process_whose_book_went_on_decides_again():
    seen = []

    class Slow(Fulfilment):
        @reacts_to(Reserved)
        def start(self, _event: Reserved) -> list[object]:
            seen.append(self.state.started)
            if len(seen) == 1:
                managed(world, Slow, id="e-2")
            return [Started()]

    world = world_of()
    world.manager(Slow, "slow")
    managed(world, Slow, correlation_id=None, id="e-1")
    assert seen == [0, 0], "two processes: neither waits for the other"
    seen.clear()
    managed(world, Slow, correlation_id="e-1", id="e-3")
    assert seen[0] == 1


def test_a_root_that_no_store_could_keep_is_refused_for_a_process():
    world = world_of()
    world.manager(Fulfilment, "fulfilment")
    with pytest.raises(InvalidRoot):
        managed(world, Fulfilment, correlation_id="x" * 256)


def test_an_event_without_a_place_starts_a_process_whose_commands_come_back_to_it():
    world = world_of()
    world.manager(Fulfilment, "fulfilment")
    managed(world, Fulfilment, sequence=None)
    assert world.outbox.sent[-1].headers["angzarr-source-domain"] == "fulfilment"


# -- depth ---------------------------------------------------------------------------------------


class Circle(Saga):
    @reacts_to(Reserved)
    def again(self, _event: Reserved) -> Send:
        return Send(Reserve(), domain="player", root=str(self.event.root))


@pytest.mark.parametrize("most", [1, 2, 5, 50])
def test_a_saga_that_answers_its_own_events_ends_as_a_letter(most):
    world = world_of(max_depth=most)
    world.saga(Circle, "circle")
    world.post(a_command(Reserve(), "player", "p-1", id="c-0"))
    world.run()
    assert world.runs == most + 2, "depths 0 to most, and the one that is refused"
    ((task, error),) = world.letters
    assert isinstance(error, ChainTooDeep)
    assert f"{most + 1} events and commands came before this" in str(error)
    assert f"max_depth ({most})" in str(error)
    assert task == ("command.player.Reserve" if most % 2 else "saga.circle")


def test_what_the_last_command_of_a_chain_undoes_is_undone():
    world = full(world_of([Released()], max_depth=2))
    world.saga(Seating, "seating")
    world.post(a_command(Reserve(), "player", "p-1", id="c-0"))
    world.run()
    assert world.letters == []
    assert [kind for kind, _ in world.events()] == ["Reserved", "Released"]


@pytest.mark.parametrize("take", ["carry_out", "manage", "react"])
def test_whatever_is_too_deep_is_refused(take):
    world = world_of(max_depth=5)
    event = Event(id="e", type="Reserved", data={}, domain="player", root="p-1", depth=6)
    context = world.context(event)
    calls = {
        "carry_out": lambda: world.chains.carry_out(context),
        "manage": lambda: world.chains.manage(Fulfilment, context),
        "react": lambda: world.reacting.react(Seating, context),
    }
    with pytest.raises(ChainTooDeep):
        calls[take]()


def test_no_retry_cures_what_is_too_deep():
    world = world_of(max_depth=5)
    context = world.context(Event(id="e", type="Reserved", data={}, depth=6))
    assert context.is_final(ChainTooDeep("deep"))


# -- what came encrypted ---------------------------------------------------------------------------

SEALED = SealedOrigin("acme-1", "acme")
_CHECK = {"size": 1, "digest": "0" * 64, "encoding": SEALED_ENCODING, "key": SEALED.key}
CAME_SEALED = {HEADER: json.dumps(_CHECK), TENANT_ID: SEALED.tenant}


@pytest.mark.parametrize(("came", "sealed"), [(CAME_SEALED, SEALED), ({}, None)])
def test_the_notice_of_a_rejected_command_is_encrypted_as_that_was(came, sealed):
    world = full(world_of())
    world.outbox.sealed.clear()
    world.came_with = came
    with pytest.raises(Skip):
        world.command(a_command(Seat(), "table", "t-1", origin=ORIGIN))
    assert world.outbox.sealed == [sealed]
    kept = read_rejection(world.case().rejection)
    assert kept.sealed == sealed, "so it is when a person has the source asked anew"


@pytest.mark.parametrize(("came", "sealed"), [(CAME_SEALED, SEALED), ({}, None)])
def test_what_is_said_on_of_a_rejection_is_encrypted_as_its_notice_was(came, sealed):
    for answer, what in ((forward, "notification"), (REVOKE, "event")):
        world = world_of(answer)
        world.command(a_command(Reserve(), "player", "p-1"))
        world.outbox.sent.clear()
        world.outbox.sealed.clear()
        world.came_with = came
        world.tell(a_rejection(Seat()))
        assert [one.what for one in world.outbox.sent] == [what]
        assert world.outbox.sealed == [sealed]


# -- deaths --------------------------------------------------------------------------------------


def forward(_asked, context):
    note = notification_of(context, context.command.occurred_at or START)
    note.cover.domain, note.cover.root.value = "bank", b"b-1"
    return note


REVOKE = Flags(emit_system_revocation=True, reason="r")
ALL = Flags(send_to_dead_letter_queue=True, escalate=True, emit_system_revocation=True, reason="r")
ANSWERS = {
    "events": [Released()],
    "events and commands": [Released(), Send(Leave(), domain="table", root="t-1")],
    "events and flags": ([Released()], ALL),
    "flags": ALL,
    "abort": Flags(escalate=True, abort=True, reason="r"),
    "declined": Flags(reason="r"),
    "nothing": None,
    "a notification": forward,
}  # fmt: skip


def chain(answer, *, room=False, process=False, kill_at=()):
    """Let a player reserve, a saga ask for a seat and the table refuse it; return all that is."""
    world = world_of(answer, fallback=ALL)
    bank = world.aggregate(players([Released()]), "bank")
    assert bank.domain == "bank"
    world.saga(Seating, "seating")
    if process:
        world.manager(Fulfilment, "fulfilment")
    world.command(a_command(Reserve(), "bank", "b-1", id="b-0"))
    if not room:
        full(world)
    world.outbox.sent.clear()
    world.steps.names.clear()
    world.steps.count, world.steps.kill_at = 0, frozenset(kill_at)
    world.post(a_command(Reserve(), "player", "p-1", id="c-0", **FLOW))
    world.run()
    return world


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_a_death_at_any_step_changes_nothing(answer):
    whole = chain(answer)
    wanted, steps = whole.outcome(), whole.steps.count
    assert steps > 15
    for kill_at in range(steps):
        world = chain(answer, kill_at=[kill_at])
        assert world.deaths == 1
        assert world.outcome() == wanted, f"killed at {whole.steps.names[kill_at]}, {kill_at}"


@pytest.mark.parametrize("room", [True, False])
def test_a_death_at_any_step_of_a_process_changes_nothing(room):
    whole = chain([Released()], room=room, process=True)
    wanted = whole.outcome()
    for kill_at in range(whole.steps.count):
        assert chain([Released()], room=room, process=True, kill_at=[kill_at]).outcome() == wanted


@settings(max_examples=60)
@given(st.sampled_from(sorted(ANSWERS)), st.sets(st.integers(0, 60), max_size=12))
def test_many_deaths_change_nothing(name, kill_at):
    answer = ANSWERS[name]
    assert chain(answer, kill_at=kill_at).outcome() == chain(answer).outcome()


def test_the_whole_chain_is_of_one_flow():
    world = chain(ANSWERS["events and flags"])
    ours = [one.event for one in world.outbox.sent if one.event.domain != "bank"]
    assert len(ours) == 6, "command, event, command, notification, event, failure"
    for event in ours:
        kept = {name: getattr(event, name) for name in FLOW}
        if event.domain == "failures":  # nobody waits for it as for the command
            kept["priority"] = Priority.REALTIME
        assert kept == FLOW, event.type
    assert [event.depth for event in ours] == [0, 1, 2, 3, 4, 4]
    by_id = {event.id: event for event in ours}
    assert [by_id[event.causation_id].type for event in ours[1:]] == [
        "Reserve", "Reserved", "Seat", "angzarr.Notification", "angzarr.Notification",
    ]  # fmt: skip


def test_what_was_reserved_is_released():
    world = chain(lambda asked, _context: Released(amount=asked.state.reserved))
    assert world.events() == [("Reserved", {"amount": 5}), ("Released", {"amount": 5})]
    assert world.letters == []
    assert world.case().status is RejectionStatus.COMPENSATED


# -- notifications -------------------------------------------------------------------------------


def test_a_notification_with_odd_data_is_refused():
    world = world_of()
    event = Event(id="r", type="angzarr.Notification", data={"saga_name": 7}, domain="player")
    with pytest.raises(DecodeError, match="saga_name"):
        world.chains.notified(world.aggregates["player"], world.context(event))


def test_what_a_notification_did_is_the_result_of_its_task():
    world = world_of([Released()])
    world.command(a_command(Reserve(), "player", "p-1", id="c-0"))
    assert world.tell(a_rejection(Seat())) == "compensated"
