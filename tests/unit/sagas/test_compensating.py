"""What becomes of a rejection at its source, by what that answers (spec C4, C5)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import product

import pytest
from pydantic import BaseModel
from tests.chain_world import World, a_command, a_rejection, address

from angzarr.aggregates.aggregate import Aggregate
from angzarr.aggregates.book import Stale
from angzarr.aggregates.command import Origin
from angzarr.aggregates.decorators import applies, handles, reacts_to, rejected
from angzarr.errors import (
    BrokerUnavailable,
    ChainTooDeep,
    CircuitOpenError,
    CompensationFailed,
    DecodeError,
    Postpone,
    RetryLater,
    StoreUnavailable,
)
from angzarr.events.event import Priority, Typed, decoder_for
from angzarr.events.headers import REPLAY
from angzarr.sagas.escalation import SagaCompensationFailed
from angzarr.sagas.log import MAX_TEXT, RejectionStatus
from angzarr.sagas.rejection import CompensationContext, from_event, to_event
from angzarr.sagas.rejection_answers import (
    Flags,
    Result,
    delegate_to_framework,
    emit_compensation_events,
    notification_of,
    pm_delegate_to_framework,
    pm_emit_compensation_events,
)
from angzarr.sagas.saga import ProcessManager, Send
from angzarr.wire.book_pb2 import EventBook
from angzarr.wire.rejection_pb2 import BusinessResponse, Notification, RevocationResponse


class Reserve(BaseModel):
    amount: int = 5


class Seat(BaseModel):
    player_id: str = "p-1"


class Reserved(BaseModel):
    amount: int = 5


class Released(BaseModel):
    amount: int = 5


class Funds(BaseModel):
    reserved: int = 0


class Player(Aggregate[Funds]):
    """A source of rejections; subclasses answer them."""

    @handles(Reserve)
    def reserve(self, command: Reserve) -> Reserved:
        return Reserved(amount=command.amount)

    @applies(Reserved)
    def on_reserved(self, event: Reserved) -> None:
        self.state.reserved += event.amount

    @applies(Released)
    def on_released(self, event: Released) -> None:
        self.state.reserved -= event.amount


def answering(answer):
    """Return a player who answers the rejection of a seat with *answer*, a function or a value."""

    class Answering(Player):
        @rejected("table", Seat)
        def refused(self, context: CompensationContext) -> object:
            return answer(self, context) if callable(answer) else answer

    return Answering


def failing(error):
    def answer(_asked, _context):
        raise error

    return answer


def world_of(answer, **options):
    """Return a world in which player p-1 reserved something, which sequence 0 says."""
    world = World(**options)
    world.aggregate(answering(answer), "player")
    world.command(a_command(Reserve(), "player", "p-1", id="c-0"))
    world.outbox.sent.clear()
    world.steps.names.clear()
    return world


REJECTED = a_rejection(Seat(), correlation_id="flow", tenant_id="acme", depth=2,
                       priority=Priority.REALTIME, config_pins={"rules": "7"},
                       traceparent="00-a-b-01")  # fmt: skip


def failed(world, rejection=REJECTED):
    with pytest.raises(CompensationFailed) as caught:
        world.tell(rejection)
    return caught.value


# -- events --------------------------------------------------------------------------------------


def test_events_are_appended_and_published_in_the_flow_of_the_command():
    world = world_of(lambda *_: [Released(), Typed("Noted", {"by": "us"})])
    assert world.tell(REJECTED) == "compensated"
    assert world.events()[1:] == [("Released", {"amount": 5}), ("Noted", {"by": "us"})]
    first, second = world.outbox.of("event")
    assert (first.sequence, second.sequence) == (1, 2)
    for event in (first, second):
        assert (event.domain, event.root, event.edition) == ("player", "p-1", None)
        assert (event.correlation_id, event.causation_id) == ("flow", REJECTED.id)
        assert (event.tenant_id, event.priority) == ("acme", Priority.REALTIME)
        assert (event.config_pins, event.traceparent) == ({"rules": "7"}, "00-a-b-01")
        assert event.depth == 4, "a command at 2, its notification at 3"
    assert first.id != second.id


def test_the_case_says_where_the_compensation_stands():
    world = world_of([Released()])
    world.clock.sleep(timedelta(seconds=3))
    world.tell(REJECTED)
    case = world.case()
    assert (case.status, case.first_event, case.event_count) == (RejectionStatus.COMPENSATED, 1, 1)
    assert (case.saga, case.source, case.target) == ("seating", address(), ("table", "t-1", ""))
    assert (case.command_id, case.command_type, case.reason) == ("c-1", "Seat", "full")
    assert case.correlation_id == "flow"
    assert world.meters.ends == [("seating", "compensated", 3.0)]


def test_placeholders_are_replaced_by_the_end_of_the_book():
    book = emit_compensation_events([Released(), Released()]).events
    book.pages[0].header.sequence, book.pages[1].header.sequence = 77, 0
    book.cover.domain = "elsewhere"
    world = world_of(book)
    world.tell(REJECTED)
    assert [event.sequence for event in world.outbox.of("event")] == [1, 2]
    assert [kind for kind, _ in world.events()] == ["Reserved", "Released", "Released"]


def test_the_source_decides_on_what_is_in_its_book():
    world = world_of(lambda asked, _: Released(amount=asked.state.reserved))
    world.command(a_command(Reserve(amount=4), "player", "p-1", id="c-2"))
    world.tell(REJECTED)
    assert world.events()[-1] == ("Released", {"amount": 9})


def test_a_source_that_went_on_meanwhile_is_asked_again():
    reserved = []

    def answer(asked, _context):
        reserved.append(asked.state.reserved)
        if len(reserved) == 1:
            world.command(a_command(Reserve(amount=4), "player", "p-1", id="c-2"))
        return Released(amount=asked.state.reserved)

    world = world_of(answer)
    world.tell(REJECTED)
    assert reserved == [5, 9]
    assert world.events()[-1] == ("Released", {"amount": 9})


def test_a_source_that_always_goes_on_is_tried_again_and_at_last_given_up(monkeypatch):
    world = world_of([Released()], fallback=Flags(escalate=True))
    monkeypatch.setattr(world.books, "write", lambda _write: Stale(9))
    with pytest.raises(Exception, match="went on"):
        world.tell(REJECTED)
    assert world.log.look("") == []
    assert world.tell(REJECTED, attempt=3) == "failed"
    assert len(world.outbox.escalated) == 1


def test_the_edition_of_the_source_is_compensated_and_no_other():
    world = world_of([Released()])
    there = address(edition="what-if")
    world.command(a_command(Reserve(), "player", "p-1", id="c-3", edition="what-if"))
    world.tell(a_rejection(Seat(), source=there, edition="what-if"))
    assert [kind for kind, _ in world.events(*there)] == ["Reserved", "Released"]
    assert [kind for kind, _ in world.events()] == ["Reserved"]
    assert world.outbox.of("event")[-1].edition == "what-if"


def test_what_was_decided_is_followed_again_and_not_decided_again():
    asked = []

    def answer(_asked, context):
        asked.append(context)
        return [Released(), Send(Seat(), domain="table", root="t-2")]

    world = world_of(answer)
    for _ in range(2):
        assert world.tell(REJECTED) == "compensated"
    assert len(asked) == 1
    assert [kind for kind, _ in world.events()] == ["Reserved", "Released"]
    for what in ("event", "command"):
        one, two = world.outbox.of(what)
        assert one == two


@pytest.mark.parametrize(
    "late",
    [failing(KeyError("boom")), None, Flags(escalate=True, emit_system_revocation=True),
     Flags(abort=True)],
    ids=["an error", "nothing", "flags", "an abort"],
)  # fmt: skip
def test_a_delivery_that_another_one_overtook_follows_what_that_decided(late):
    """As where a person has the source asked anew while an old release still answers."""
    deliveries = []

    def answer(asked, context):
        deliveries.append(1)
        if len(deliveries) > 1:
            return Released()
        assert world.tell(REJECTED) == "compensated"
        return late(asked, context) if callable(late) else late

    everything = Flags(send_to_dead_letter_queue=True, escalate=True, emit_system_revocation=True)
    world = world_of(answer, fallback=everything)
    assert world.tell(REJECTED, attempt=3) == "compensated"
    assert world.case().status is RejectionStatus.COMPENSATED
    assert world.outbox.escalated == []
    assert {event.type for event in world.outbox.of("event")} == {"Released"}
    assert [kind for kind, _ in world.events()] == ["Reserved", "Released"]


def test_a_source_whose_book_cannot_be_read_falls_back(monkeypatch):
    world = world_of([Released()], fallback=Flags(escalate=True))

    def unreadable(*_, **__):
        raise ValueError("event 0 is no event")

    monkeypatch.setattr(world.books, "read", unreadable)
    assert world.tell(REJECTED) == "failed"
    ((_, why),) = world.outbox.escalated
    assert why == "ValueError: event 0 is no event"


# -- commands ------------------------------------------------------------------------------------


def test_commands_in_an_answer_are_sent_and_nobody_hears_of_their_rejection():
    world = world_of([Send(Seat(), domain="table", root="t-2"), Released()])
    assert world.tell(REJECTED) == "compensated"
    (sent,) = [one for one in world.outbox.sent if one.what == "command"]
    event = sent.event
    assert (event.domain, event.root, event.type) == ("table", "t-2", "Seat")
    assert (event.correlation_id, event.tenant_id, event.depth) == ("flow", "acme", 4)
    assert (event.config_pins, event.traceparent) == ({"rules": "7"}, "00-a-b-01")
    assert sent.headers == {}
    assert world.outbox.sent[0].what == "event", "events come first"


def test_commands_alone_are_a_compensation_without_events():
    world = world_of(Send(Seat(), domain="table", root="t-2"))
    assert world.tell(REJECTED) == "compensated"
    case = world.case()
    assert (case.first_event, case.event_count) == (None, 0)
    assert len(world.outbox.of("command")) == 1


# -- flags ---------------------------------------------------------------------------------------

ENDS = {Result.REVOKED: "revoked", Result.DECLINED: "declined", Result.ABORTED: "aborted"}
FOUR = [
    Flags(send_to_dead_letter_queue=letter, escalate=escalate, abort=abort,
          emit_system_revocation=revoke, reason="too late")
    for letter, escalate, abort, revoke in product((False, True), repeat=4)
]  # fmt: skip


def wired(flags):
    return RevocationResponse(
        emit_system_revocation=flags.emit_system_revocation, escalate=flags.escalate,
        send_to_dead_letter_queue=flags.send_to_dead_letter_queue, abort=flags.abort,
        reason=flags.reason,
    )  # fmt: skip


def shown(flags):
    names = ("send_to_dead_letter_queue", "escalate", "abort", "emit_system_revocation")
    return "+".join(name.split("_")[0] for name in names if getattr(flags, name)) or "none"


def assert_done(world, flags, before=0):
    """Assert that what *flags* ask for was done, once its letter was there."""
    reasons = [reason for _, reason in world.outbox.escalated]
    assert len(reasons) == flags.escalate
    published = world.outbox.of("event")[before:]
    assert len(published) == (flags.emit_system_revocation and not flags.abort)
    names = [name for name in world.steps.names if name in ("escalate", "send event")][before:]
    assert names == sorted(names), "a person is called before an event is sent"


@pytest.mark.parametrize("form", [
    lambda flags: flags, wired, lambda flags: BusinessResponse(revocation=wired(flags)),
    lambda flags: (None, flags), lambda flags: ([], wired(flags)),
], ids=["ours", "wire", "response", "beside nothing", "beside no events"])  # fmt: skip
@pytest.mark.parametrize("flags", FOUR, ids=shown)
def test_flags_are_carried_out(flags, form):
    world = world_of(form(flags))
    if flags.send_to_dead_letter_queue or flags.abort:
        error = failed(world)
        assert "too late" in str(error)
        assert world.outbox.sent == world.outbox.escalated == [], "the letter comes first"
        error.afterwards()
    else:
        assert world.tell(REJECTED) == ENDS[flags.result]
    assert_done(world, flags)
    case = world.case()
    assert (case.status, case.answer) == (ENDS[flags.result], "too late")
    assert world.meters.ends == [("seating", ENDS[flags.result], 0.0)]
    assert len(world.events()) == 1


def test_the_letter_says_what_was_rejected_and_why_nobody_undid_it():
    said = str(failed(world_of(Flags(abort=True, reason="too late"))))
    assert said == "Seat of seating was rejected by table/t-1 (full); too late"
    said = str(failed(world_of(Flags(abort=True))))
    assert said == "Seat of seating was rejected by table/t-1 (full); no reason was given"


def test_a_system_revocation_says_all_of_it():
    world = world_of(delegate_to_framework("too late"))
    assert world.tell(REJECTED) == "revoked"
    (event,) = world.outbox.of("event")
    assert (event.domain, event.root) == ("failures", "p-1")
    assert (event.correlation_id, event.causation_id) == ("flow", REJECTED.id)
    assert (event.tenant_id, event.config_pins) == ("acme", {"rules": "7"})
    assert (event.traceparent, event.depth) == ("00-a-b-01", 4)
    assert event.occurred_at == REJECTED.rejected_at
    told = decoder_for(SagaCompensationFailed)(event.data)
    assert told.triggering_aggregate == address()
    assert (told.triggering_event_sequence, told.saga_name) == (0, "seating")
    assert told.rejection_reason == "full"
    assert told.compensation_failure_reason == "too late"
    assert (told.rejected_command.type, told.rejected_command.root) == ("Seat", "t-1")
    assert told.rejected_command.data == {"player_id": "p-1"}
    assert told.occurred_at == REJECTED.rejected_at


@pytest.mark.parametrize("flags", FOUR, ids=shown)
def test_flags_beside_events_are_carried_out_after_them(flags):
    world = world_of(([Released()], flags))
    if flags.send_to_dead_letter_queue or flags.abort:
        failed(world).afterwards()
    else:
        assert world.tell(REJECTED) == "compensated"
    assert world.outbox.of("event")[0].type == "Released"
    assert_done(world, flags, before=1)
    assert world.case().status is RejectionStatus.COMPENSATED
    assert [kind for kind, _ in world.events()] == ["Reserved", "Released"]


def test_flags_beside_events_are_kept_with_them():
    """The source is not asked again, so what it asked for must not be lost."""
    answers = [([Released()], Flags(escalate=True, reason="too late"))]
    world = world_of(lambda *_: answers.pop())
    for _ in range(2):
        assert world.tell(REJECTED) == "compensated"
    assert [reason for _, reason in world.outbox.escalated] == ["too late"] * 2


FIRST = {
    "flags": lambda *_: Flags(emit_system_revocation=True, escalate=True, reason="locked"),
    "nothing": lambda *_: None,
    "an error": failing(KeyError("boom")),
}


def changing(first):
    """Return a world whose source answers *first* once, and then compensates."""
    answers = [first, lambda *_: Released()]
    fallback = Flags(emit_system_revocation=True, escalate=True)
    return world_of(
        lambda *given: answers.pop(0)(*given) if len(answers) > 1 else answers[0](*given),
        fallback=fallback,
    )


@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST)
def test_a_delivery_that_comes_again_repeats_the_flags_and_compensates_no_more(first):
    """That nobody compensates was published: others may have undone it by now."""
    world = changing(first)
    ends = {world.tell(REJECTED) for _ in range(3)}
    assert len(ends) == 1
    assert [kind for kind, _ in world.events()] == ["Reserved"]
    failures = world.outbox.of("event")
    assert len(failures) == 3
    assert all(event == failures[0] for event in failures)
    assert len({why for _, why in world.outbox.escalated}) == 1


@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST)
def test_a_source_that_a_person_has_asked_anew_may_answer_otherwise(first):
    world = changing(first)
    world.tell(REJECTED)
    context = world.context(to_event(REJECTED, 1))
    assert world.chains.notified(world.aggregates["player"], context) == "compensated"
    assert [kind for kind, _ in world.events()] == ["Reserved", "Released"]
    assert world.tell(REJECTED) == "compensated", "whoever comes late follows the book"


@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST)
def test_a_source_that_a_replayed_letter_asks_anew_may_answer_otherwise(first):
    world = changing(first)
    world.tell(REJECTED)
    context = world.context(to_event(REJECTED), {REPLAY: 1})
    assert context.replay == 1
    assert world.chains.notified(world.aggregates["player"], context) == "compensated"
    assert [kind for kind, _ in world.events()] == ["Reserved", "Released"]


def test_flags_that_could_not_be_kept_are_not_carried_out(monkeypatch):
    world = changing(FIRST["flags"])

    def away(_write):
        raise StoreUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(world.books, "write", away)
        with pytest.raises(Postpone):
            world.tell(REJECTED)
    assert world.outbox.sent == world.outbox.escalated == []
    assert world.log.look("") == []


LETTER = Flags(send_to_dead_letter_queue=True)
DECLINED = "the key is *** now"


@pytest.mark.parametrize(
    ("answer", "fallback", "why"),
    [(Flags(reason="the key is hunter2 now"), LETTER, DECLINED), (Flags(), LETTER, "no reason"),
     (Flags(escalate=True), LETTER, "no reason"), (None, Flags(), "the source answered nothing"),
     (failing(KeyError("hunter2")), Flags(), "KeyError: '***'")],
    ids=["declined", "for no reason", "a person is called", "nothing", "an error"],
)  # fmt: skip
def test_that_nobody_undoes_it_is_one_line_in_the_log(caplog, answer, fallback, why):
    world = world_of(answer, fallback=fallback)
    world.tell(a_rejection(Seat(), reason="full of hunter2"))
    (line,) = [one for one in caplog.records if one.name == "angzarr.sagas"]
    assert line.levelname == "WARNING"
    said = line.getMessage()
    assert said.startswith(
        "compensation_declined: Seat of seating was rejected by table/t-1 (full of ***);"
        f" player/p-1 undoes nothing: {why}"
    )


@pytest.mark.parametrize(
    ("answer", "fallback"),
    [([Released()], Flags()), (Flags(emit_system_revocation=True), Flags()),
     (None, Flags(escalate=True))],
    ids=["compensated", "revoked", "escalated"],
)  # fmt: skip
def test_what_somebody_sees_to_is_no_such_line(caplog, answer, fallback):
    world_of(answer, fallback=fallback).tell(REJECTED)
    assert [one for one in caplog.records if one.name == "angzarr.sagas"] == []


# -- nothing, or an error ------------------------------------------------------------------------

FALLBACKS = [
    Flags(emit_system_revocation=revoke, send_to_dead_letter_queue=letter, escalate=escalate)
    for revoke, letter, escalate in product((False, True), repeat=3)
]
NOTHING = {
    "None": None, "no events": [], "no pages": EventBook(), "an empty response": BusinessResponse(),
    "no pages in a response": BusinessResponse(events=EventBook()),
}  # fmt: skip


@pytest.mark.parametrize("fallback", FALLBACKS, ids=shown)
@pytest.mark.parametrize("answer", [None, failing(KeyError("boom"))], ids=["nothing", "an error"])
def test_the_settings_say_what_is_done_where_nobody_compensates(answer, fallback):
    world = world_of(answer, fallback=fallback)
    if fallback.send_to_dead_letter_queue:
        failed(world).afterwards()
    else:
        assert world.tell(REJECTED) == "failed"
    assert_done(world, fallback)
    case = world.case()
    assert case.status is RejectionStatus.FAILED
    assert case.answer == ("KeyError: 'boom'" if answer else "the source answered nothing")
    assert [status for _, status, _ in world.meters.ends] == ["failed"]


@pytest.mark.parametrize("said", NOTHING.values(), ids=NOTHING)
def test_an_answer_that_says_nothing_is_none(said):
    world = world_of(said)
    assert world.tell(REJECTED) == "failed"
    assert world.case().answer == "the source answered nothing"


@pytest.mark.parametrize(
    "said", [{}, "text", 0, True, [None], Reserved, [Flags()], {"a": 1}, object], ids=repr
)
def test_an_answer_that_is_neither_events_nor_flags_is_an_error(said):
    world = world_of(lambda *_: said)
    assert world.tell(REJECTED) == "failed"
    assert world.case().answer.startswith("NotAnEvent: ")
    assert len(world.events()) == 1


def test_an_error_that_cannot_be_printed_is_an_error_all_the_same():
    class Odd(Exception):
        def __str__(self):
            raise RuntimeError

    world = world_of(failing(Odd()))
    assert world.tell(REJECTED) == "failed"
    assert world.case().answer == "Odd: a Odd that cannot be printed"


def test_a_long_error_is_cut_in_the_log_and_in_what_is_sent():
    world = world_of(failing(KeyError("x" * 9_000)), fallback=Flags(escalate=True))
    world.tell(REJECTED)
    assert len(world.case().answer) == MAX_TEXT
    assert len(world.outbox.escalated[0][1]) == MAX_TEXT


def test_the_error_of_the_source_is_the_cause_of_the_letter():
    boom = KeyError("boom")
    error = failed(world_of(failing(boom), fallback=Flags(send_to_dead_letter_queue=True)))
    assert error.__cause__ is boom


def test_an_error_that_may_pass_is_raised_until_it_is_final():
    world = world_of(failing(TimeoutError("slow")), fallback=Flags(escalate=True))
    for attempt in (1, 2):
        with pytest.raises(TimeoutError):
            world.tell(REJECTED, attempt=attempt)
    assert world.log.look("") == []
    assert world.outbox.escalated == []
    assert world.tell(REJECTED, attempt=3) == "failed"
    assert len(world.outbox.escalated) == 1


@pytest.mark.parametrize("away", [StoreUnavailable("away"), BrokerUnavailable("away")])
@pytest.mark.parametrize("attempt", [1, 3])
def test_what_is_away_is_waited_for_and_never_taken_for_an_answer(away, attempt):
    world = world_of(failing(away), fallback=Flags(escalate=True))
    with pytest.raises(Postpone, match="away"):
        world.tell(REJECTED, attempt=attempt)
    assert world.log.look("") == []
    assert world.outbox.escalated == []


@pytest.mark.parametrize("step", ["write", "written", "send event", "send command", "note"])
def test_a_server_that_is_away_at_any_step_is_waited_for(step):
    world = world_of([Released(), Send(Seat(), domain="table", root="t-2")])
    healthy = world.steps
    away = StoreUnavailable("away")

    def steps(name):
        if name == step:
            raise away

    world.books.steps = world.log.steps = world.outbox.steps = steps
    with pytest.raises(Postpone, match="away"):
        world.tell(REJECTED, attempt=3)
    world.books.steps = world.log.steps = world.outbox.steps = healthy
    assert world.tell(REJECTED) == "compensated"
    assert [kind for kind, _ in world.events()] == ["Reserved", "Released"]


# -- notifications -------------------------------------------------------------------------------


def forwarding(root="b-1", domain="bank", change=lambda note: note):
    """Answer with the notification, sent on to *domain*/*root*."""

    def answer(_asked, context):
        note = notification_of(context, REJECTED.rejected_at)
        note.cover.domain, note.cover.root.value = domain, root.encode()
        return change(note)

    return answer


def test_a_notification_is_sent_on_to_its_cover():
    world = world_of(forwarding())
    assert world.tell(REJECTED) == "forwarded"
    (event,) = world.outbox.of("notification")
    assert (event.domain, event.root) == ("bank", "b-1")
    assert event.depth == 4, "one deeper than the notification that was answered"
    told = from_event(event)
    assert told.origin == Origin(saga="seating", source=address("bank", "b-1"), sequence=0)
    assert (told.reason, told.rejected_at) == ("full", REJECTED.rejected_at)
    assert told.id != REJECTED.id
    (case,), (onward,) = world.log.look(REJECTED.id), world.log.look(told.id)
    assert (case.status, case.answer) == (RejectionStatus.FORWARDED, "sent on to bank/b-1")
    assert (onward.status, onward.source) == (RejectionStatus.TOLD, address("bank", "b-1"))
    assert [status for _, status, _ in world.meters.ends] == ["forwarded"]
    assert len(world.events()) == 1


def test_what_is_sent_on_is_still_of_the_flow_that_it_came_from():
    """The wire has no field for a tenant, for pins and for the id of a command."""
    world = world_of(forwarding())
    world.tell(REJECTED)
    told = from_event(world.outbox.of("notification")[0]).command.event
    assert told == replace(REJECTED.command.event, depth=3)


def test_what_is_sent_on_without_the_name_of_the_saga_keeps_it():
    def nameless(note):
        note.metadata.clear()
        return note

    world = world_of(forwarding(change=nameless))
    world.tell(REJECTED)
    assert from_event(world.outbox.of("notification")[0]).origin.saga == "seating"


def test_a_notification_of_another_command_is_sent_on_in_the_same_flow():
    other = a_rejection(Reserve(), "bank", "b-9", id="c-9")

    def answer(_asked, _context):
        note = notification_of(CompensationContext.of(other), REJECTED.rejected_at)
        note.cover.domain, note.cover.root.value = "bank", b"b-1"
        return note

    world = world_of(answer)
    world.tell(REJECTED)
    event = world.outbox.of("notification")[0]
    told = from_event(event).command.event
    assert (told.type, told.domain, told.root) == ("Reserve", "bank", "b-9")
    assert (event.correlation_id, event.tenant_id) == ("flow", "acme")
    assert event.config_pins == {"rules": "7"}


def test_sending_on_again_sends_the_same():
    world = world_of(forwarding())
    world.tell(REJECTED)
    world.clock.sleep(timedelta(minutes=1))
    world.tell(REJECTED)
    one, two = world.outbox.of("notification")
    assert one == two


@pytest.mark.parametrize(
    "said",
    [Notification(), BusinessResponse(notification=Notification())],
    ids=["bare", "response"],
)
def test_a_notification_that_cannot_be_read_is_an_error(said):
    world = world_of(said)
    assert world.tell(REJECTED) == "failed"
    assert world.case().answer.startswith("DecodeError: the notification holds nothing")
    assert world.outbox.sent == []


@pytest.mark.parametrize(
    ("change", "why"),
    [({"domain": "No Domain"}, "InvalidDomainName"), ({"root": ""}, "InvalidRoot"),
     ({"root": "x\n"}, "InvalidRoot"), ({"domain": ""}, "InvalidDomainName")],
    ids=repr,
)  # fmt: skip
def test_a_notification_for_nobody_is_an_error(change, why):
    world = world_of(forwarding(**change))
    assert world.tell(REJECTED) == "failed"
    assert world.case().answer.startswith(why)
    assert world.outbox.sent == []


def test_a_notification_of_a_command_without_origin_is_an_error():
    def bare(note):
        context = CompensationContext.of(REJECTED)
        without = replace(context.rejected_command, origin=None)
        odd = notification_of(replace(context, rejected_command=without), REJECTED.rejected_at)
        note.payload.CopyFrom(odd.payload)
        return note

    world = world_of(forwarding(change=bare))
    assert world.tell(REJECTED) == "failed"
    assert "a command without an origin" in world.case().answer


def test_sources_that_send_on_to_each_other_come_to_an_end_and_the_last_falls_back():
    world = World(max_depth=10, fallback=Flags(escalate=True))
    world.aggregate(answering(forwarding("p-1", "bank")), "player")
    world.aggregate(answering(forwarding("p-1", "player")), "bank")
    for domain in ("player", "bank"):
        world.command(a_command(Reserve(), domain, "p-1", id=f"c-{domain}"))
    world.outbox.sent.clear()
    world.outbox.tell(REJECTED)
    world.run()
    notes = world.outbox.of("notification")
    assert [event.depth for event in notes] == [3, 4, 5, 6, 7, 8, 9, 10]
    ((last, why),) = world.outbox.escalated
    assert last.id == from_event(notes[-1]).id
    assert why.startswith("ChainTooDeep: 11 events and commands came before this")


@pytest.mark.parametrize("depth", [50, 51, 900])
def test_a_rejection_is_compensated_however_deep_its_command_was(depth):
    """It was let through: who refuses to hear of its rejection leaves its source in the dark."""
    world = world_of([Released(), Send(Seat(), domain="table", root="t-2")], max_depth=50)
    assert world.tell(a_rejection(Seat(), depth=depth)) == "compensated"
    assert world.events()[-1] == ("Released", {"amount": 5})
    (sent,) = world.outbox.of("command")
    with pytest.raises(ChainTooDeep):
        world.chains.carry_out(world.context(sent))


# -- by which method -----------------------------------------------------------------------------


def test_the_method_is_that_for_the_domain_and_the_type_of_the_command():
    class Both(Player):
        @rejected("table", Seat)
        def by_table(self, _context: CompensationContext) -> Released:
            return Released(amount=1)

        @rejected("bar", Seat)
        def by_bar(self, _context: CompensationContext) -> Released:
            return Released(amount=2)

        @rejected("bar", Reserve)
        def other(self, _context: CompensationContext) -> Released:
            return Released(amount=3)

    world = world_of(None)
    world.aggregate(Both, "player")
    for index, (payload, domain) in enumerate(
        [(Seat(), "table"), (Seat(), "bar"), (Reserve(), "bar"), (Reserve(), "table")]
    ):
        rejection = a_rejection(payload, domain, "x", id=f"r-{index}")
        assert world.tell(rejection) == ("compensated" if index < 3 else "failed")
    assert [data["amount"] for _, data in world.events()[1:]] == [1, 2, 3]


def test_a_method_is_told_all_of_the_rejection():
    told = []
    world = world_of(lambda _asked, context: told.append(context))
    world.tell(REJECTED)
    (context,) = told
    assert context.saga_origin == REJECTED.origin
    assert (context.rejection_reason, context.correlation_id) == ("full", "flow")
    assert context.command.id == "c-1"
    assert context.command_as(Seat) == Seat()


class Older(Player):
    def handle_revocation(self, command):
        self.told.append(command)
        return self.say(command)


def older(say):
    world = world_of(None)
    kind = type("OlderStill", (Older,), {"told": [], "say": staticmethod(say)})
    world.aggregate(kind, "player")
    return world, kind.told


def test_the_older_form_is_asked_where_there_is_no_method():
    world, told = older(lambda _command: emit_compensation_events([Released()]))
    assert world.tell(REJECTED) == "compensated"
    (command,) = told
    assert (command.triggering_event_sequence, command.saga_name) == (0, "seating")
    assert command.rejection_reason == "full"
    assert world.events()[-1] == ("Released", {"amount": 5})


def test_a_method_comes_before_the_older_form():
    class Newer(Older):
        told: list = []  # noqa: RUF012 - looked at below

        @rejected("table", Seat)
        def refused(self, _context: CompensationContext) -> Released:
            return Released(amount=1)

    world = world_of(None)
    world.aggregate(Newer, "player")
    world.tell(REJECTED)
    assert world.events()[-1] == ("Released", {"amount": 1})
    assert Newer.told == []


def test_the_older_form_may_delegate_or_fail():
    world, _ = older(lambda _command: delegate_to_framework("too late"))
    assert world.tell(REJECTED) == "revoked"

    def boom(_command):
        raise KeyError("boom")

    world, _ = older(boom)
    assert world.tell(REJECTED) == "failed"


def test_a_source_without_a_method_for_the_command_is_told_apart():
    """A slip of the pen in the decorator looks like a source that has nothing to say."""

    class Slip(Player):
        @rejected("tabel", Seat)
        def refused(self, _context: CompensationContext) -> Released:
            return Released()

    world = world_of(None)
    world.aggregate(Slip, "player")
    assert world.tell(REJECTED) == "failed"
    assert world.case().answer.endswith("Slip has no @rejected('table', 'Seat')")
    world, _ = older(lambda _command: None)
    assert world.tell(REJECTED) == "failed"
    assert world.case().answer == "the source answered nothing"


# -- process managers ----------------------------------------------------------------------------


class Progress(BaseModel):
    failed: bool = False


class Stuck(BaseModel):
    why: str = ""


class Seating(ProcessManager[Progress]):
    """Subclasses answer rejections."""

    @reacts_to(Reserved)
    def start(self, _event: Reserved) -> Send:
        return Send(Seat(), domain="table", root="t-1")

    @applies(Stuck)
    def on_stuck(self, _event: Stuck) -> None:
        self.state.failed = True


def manager(answer=None, older=None):
    members = {}
    if answer is not None:
        members["refused"] = rejected("table", Seat)(lambda self, context: answer)
    if older is not None:
        members["handle_revocation"] = lambda self, command, state: older(command, state)
    world = World()
    world.manager(type("Manager", (Seating,), members), "seating")
    return world


OF_PROCESS = a_rejection(Seat(), source=address("seating", "flow"), sequence=7,
                         correlation_id="flow")  # fmt: skip


def test_a_process_that_appended_nothing_yet_hears_of_rejections():
    world = manager([Stuck(why="full")])
    assert world.tell(OF_PROCESS) == "compensated"
    assert world.events("seating", "flow") == [("Stuck", {"why": "full"})]


def test_commands_in_the_answer_of_a_process_come_back_to_it():
    world = manager([Send(Seat(), domain="table", root="t-2")])
    world.tell(OF_PROCESS)
    (sent,) = world.outbox.sent
    assert sent.headers == {
        "angzarr-saga": "seating", "angzarr-source-domain": "seating",
        "angzarr-source-root": "flow", "angzarr-source-sequence": 7,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("said", "ends", "recorded"),
    [(pm_emit_compensation_events([Stuck()]), "compensated", 1),
     (pm_delegate_to_framework("too late"), "revoked", 0),
     ((None, Flags()), "declined", 0),
     (None, "failed", 0)],
    ids=["events", "delegated", "declined", "nothing"],
)  # fmt: skip
def test_the_older_form_of_a_process_is_given_its_state(said, ends, recorded):
    states = []

    def answer(command, state):
        states.append((command.saga_name, state))
        return said

    world = manager(older=answer)
    assert world.tell(OF_PROCESS) == ends
    assert states == [("seating", Progress())]
    assert len(world.events("seating", "flow")) == recorded


def test_a_process_may_record_a_failure_and_have_it_told():
    said = pm_emit_compensation_events([Stuck()], also_emit_system_event=True, reason="too late")
    world = manager(older=lambda *_: said)
    assert world.tell(OF_PROCESS) == "compensated"
    assert [event.type for event in world.outbox.of("event")] == [
        "Stuck", "angzarr.SagaCompensationFailed",
    ]  # fmt: skip


# -- whoever is not there ------------------------------------------------------------------------


def test_a_notification_for_an_aggregate_that_nobody_knows_is_not_lost():
    """It would begin a book with events that undo what never happened."""
    world = world_of([Released()], fallback=Flags(send_to_dead_letter_queue=True))
    error = failed(world, a_rejection(Seat(), source=address(root="nobody")))
    assert "there is no player/nobody" in str(error)
    assert world.events("player", "nobody") == []
    assert world.case().status is RejectionStatus.FAILED


@pytest.mark.parametrize(("sequence", "ends"), [(0, "compensated"), (1, "failed"), (9, "failed")])
def test_a_notification_of_an_event_that_is_not_in_the_book_undoes_nothing(sequence, ends):
    world = world_of([Released()])
    assert world.tell(a_rejection(Seat(), sequence=sequence)) == ends
    assert len(world.events()) == (2 if ends == "compensated" else 1)
    if ends == "failed":
        assert f"player/p-1 has no event {sequence}" in world.case().answer


def test_what_is_sent_on_to_a_shorter_book_is_compensated_there():
    """The event that it names is of whoever sent it on."""
    world = world_of(forwarding())
    world.aggregate(answering([Released()]), "bank")
    for domain, root in (("player", "p-1"), ("bank", "b-1")):
        world.command(a_command(Reserve(), domain, root, id=f"c-{domain}"))
    world.tell(a_rejection(Seat(), sequence=1))
    (event,) = world.outbox.of("notification")
    context = world.context(event)
    assert world.chains.notified(world.aggregates["bank"], context) == "compensated"


def test_a_notification_for_another_domain_is_refused():
    world = world_of([Released()])
    elsewhere = a_rejection(Seat(), source=address("bank", "b-1"))
    world.aggregates["bank"] = world.aggregates["player"]
    with pytest.raises(DecodeError, match="the notification is for bank/b-1, not for 'player'"):
        world.tell(elsewhere)


# -- what a method says of time ------------------------------------------------------------------


@pytest.mark.parametrize("attempt", [1, 3])
def test_a_method_that_asks_to_be_run_later_is_run_later(attempt):
    """It is no failure, whatever the settings say of those."""
    world = world_of(failing(Postpone(5, "not now")), fallback=Flags(escalate=True))
    with pytest.raises(Postpone, match="not now"):
        world.tell(REJECTED, attempt=attempt)
    assert world.outbox.escalated == []


def test_a_method_that_asks_for_another_attempt_gets_it_until_there_is_none():
    world = world_of(failing(RetryLater(5)), fallback=Flags(escalate=True))
    with pytest.raises(RetryLater):
        world.tell(REJECTED)
    assert world.tell(REJECTED, attempt=3) == "failed"


@pytest.mark.parametrize("attempt", [1, 3])
def test_an_open_breaker_is_waited_for(attempt):
    world = world_of(failing(CircuitOpenError("crm", timedelta(seconds=9))))
    with pytest.raises(CircuitOpenError):
        world.tell(REJECTED, attempt=attempt)
    assert world.log.look("") == []
