"""What an app registers for commands and sagas, and what it does with commands that it is given."""

from __future__ import annotations

import json
import uuid
from datetime import timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from tests.apps import apps
from tests.chain_world import a_command, a_rejection, address
from tests.hand_clock import START

from angzarr import Limit
from angzarr.aggregates.aggregate import Aggregate
from angzarr.aggregates.book import Address
from angzarr.aggregates.command import Command, Intent, MergeStrategy, Origin
from angzarr.aggregates.decorators import (
    applies,
    handles,
    merge_strategy,
    reacts_to,
    rejected,
)
from angzarr.delivery.context import RUNNING, Context
from angzarr.delivery.delivery import DeadLettered, Duplicate, Handled, Skipped, read
from angzarr.errors import (
    CommandAbortedError,
    CommandRejectedError,
    ConfigurationError,
    DuplicateHandler,
    InvalidDomainName,
    InvalidRoot,
    MaxRetriesExceededError,
    MissingExtra,
    NotAnEvent,
    SequenceConflictError,
    Skip,
    UnknownCommand,
    UnserializableEvent,
)
from angzarr.events import headers as names
from angzarr.events.event import Event, Message, Priority, Typed, task_id_for
from angzarr.events.headers import MAX_SEQUENCE
from angzarr.resilience.policies import POLICIES
from angzarr.sagas.escalation import failure_event
from angzarr.sagas.rejection import CompensationContext, from_event, to_event
from angzarr.sagas.saga import ProcessManager, Saga, Send


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


def players():
    """Return a class of its own: it bears the marks of where it is registered."""

    class Player(Aggregate[Funds]):
        @handles(Reserve)
        def reserve(self, command: Reserve) -> Reserved:
            if command.amount > 100:
                raise CommandRejectedError("too much")
            return Reserved(amount=command.amount)

        @handles("Audit")
        @merge_strategy(MergeStrategy.MANUAL)
        def audit(self, _command: object) -> Reserved:
            return Reserved()

        @applies(Reserved)
        def on_reserved(self, event: Reserved) -> None:
            self.state.reserved += event.amount

        @applies(Released)
        def on_released(self, event: Released) -> None:
            self.state.reserved -= event.amount

        @rejected("table", Seat)
        def refused(self, context: CompensationContext) -> Released:
            return Released(amount=self.state.reserved)

    return Player


def tables():
    class Table(Aggregate[Funds]):
        @handles(Seat)
        def seat(self, _command: Seat) -> None:
            raise CommandRejectedError("full")

    return Table


def sagas():
    class Seating(Saga):
        @reacts_to(Reserved)
        def ask(self, _event: Reserved) -> Send:
            return Send(Seat(), domain="table", root="t-1")

    return Seating


def managers():
    class Fulfilment(ProcessManager[Funds]):
        @reacts_to(Reserved)
        def start(self, _event: Reserved) -> Send:
            return Send(Seat(), domain="table", root="t-1")

    return Fulfilment


@pytest.fixture
def make_app(facts_elsewhere):
    with apps(broker="memory://", store="memory://", books="memory://") as make:
        yield make


@pytest.fixture
def app(make_app):
    return make_app()


def sent(app, queue=None):
    """Take the messages from a queue, as deliveries."""
    found = []
    with (
        app.connection_for_read() as connection,
        connection.SimpleQueue(queue or app.conf.task_default_queue) as simple,
    ):
        while simple.qsize():
            message = simple.get_nowait()
            message.ack()
            found.append(delivery(message.headers["task"], json.loads(message.body)[0],
                                  message.headers))  # fmt: skip
    return found


def delivery(task, args, headers):
    message = Message(
        body=json.dumps([args, {}, {}]).encode(), content_type="application/json",
        content_encoding="utf-8", queue="q", headers={"id": "m", **headers, "task": task},
    )  # fmt: skip
    return read(message, args=args, kwargs={}, token=uuid.uuid4().hex, owner="w")


def bring(app, task, event, **more):
    """Return the outcome of a delivery of *event* to *task*."""
    app._parts.claims.leases.renew("w", timedelta(hours=1))
    return app._runtime.executor().take(
        delivery(task, [event.data], names.to_headers(event) | more)
    )


# -- registering ---------------------------------------------------------------------------------


def test_what_is_registered_has_the_names_that_senders_know(app):
    app.aggregate("player")(players())
    app.saga("seating")(sagas())
    app.process_manager("fulfilment")(managers())
    ours = {handler.name for handler in app.handlers} - {"angzarr.saga_failures"}
    assert ours == {
        "command.player.Reserve", "command.player.Audit", "notification.player",
        "saga.seating.Reserved", "process.fulfilment.Reserved", "notification.fulfilment",
    }  # fmt: skip
    assert set(app._context.aggregates) == {"player", "fulfilment"}


def test_a_class_is_returned_as_it_was_given(app):
    for register, kind in [(app.aggregate("player"), players()), (app.saga("seating"), sagas()),
                           (app.process_manager("fulfilment"), managers())]:  # fmt: skip
        assert register(kind) is kind


@pytest.mark.parametrize("name", ["", "No Domain", "a/b", "x" * 65, "1a"])
def test_a_bad_name_is_refused_at_once(app, name):
    for register in (app.aggregate, app.saga, app.process_manager):
        with pytest.raises(InvalidDomainName):
            register(name)
    with pytest.raises(InvalidDomainName):
        app.saga("seating", source=name)


def test_one_domain_has_one_aggregate(app):
    app.aggregate("player")(players())
    with pytest.raises(ConfigurationError, match="the domain 'player' has two aggregates"):
        app.aggregate("player")(players())
    with pytest.raises(ConfigurationError, match="the domain 'player' has two aggregates"):
        app.process_manager("player")(managers())


def test_the_same_class_is_registered_once(app):
    kind, saga, manager = players(), sagas(), managers()
    app.aggregate("player")(kind)
    app.saga("seating")(saga)
    app.process_manager("fulfilment")(manager)
    for again in (lambda: app.aggregate("player")(kind), lambda: app.saga("seating")(saga),
                  lambda: app.process_manager("fulfilment")(manager)):  # fmt: skip
        with pytest.raises(DuplicateHandler):
            again()


def test_one_class_has_one_name(app):
    """Its domain stands in its books, and the name of a saga in the ids of its commands."""
    kind, saga, manager = players(), sagas(), managers()
    app.aggregate("player")(kind)
    app.saga("seating")(saga)
    app.process_manager("fulfilment")(manager)
    for again in (lambda: app.aggregate("bank")(kind), lambda: app.saga("other")(saga),
                  lambda: app.process_manager("other")(manager)):  # fmt: skip
        with pytest.raises(ConfigurationError, match="derive a class for each"):
            again()
    assert (kind.domain, saga.name, manager.name) == ("player", "seating", "fulfilment")
    assert set(app._context.aggregates) == {"player", "fulfilment"}


def test_two_apps_may_have_the_same_class_under_one_name(app, make_app):
    kind = players()
    app.aggregate("player")(kind)
    make_app("other").aggregate("player")(kind)
    derived = type("Other", (kind,), {})
    app.aggregate("other")(derived)
    assert (kind.domain, derived.domain) == ("player", "other")


def test_a_class_without_a_state_is_refused(app):
    class Stateless(Aggregate):
        @handles(Reserve)
        def reserve(self, _command: Reserve) -> None:
            pass

    class Picky(BaseModel):
        needed: int

    class NoDefault(Aggregate[Picky]):
        pass

    with pytest.raises(ConfigurationError, match="names no state"):
        app.aggregate("player")(Stateless)
    with pytest.raises(ConfigurationError, match="cannot be made without arguments"):
        app.aggregate("player")(NoDefault)
    assert app._context.aggregates == {}


@pytest.mark.parametrize(
    ("mark", "word"),
    [(applies(Reserved), "applies"), (handles(Reserve), "handles"),
     (rejected("table", Seat), "rejected")],
    ids=["applies", "handles", "rejected"],
)  # fmt: skip
def test_a_saga_has_no_state(app, mark, word):
    kind = type("Odd", (sagas(),), {"extra": mark(lambda self, it: None)})
    with pytest.raises(ConfigurationError, match=f"so it cannot use @{word}: derive it from"):
        app.saga("seating")(kind)


def test_what_reacts_to_nothing_is_no_saga(app):
    for register, kind in [(app.saga("s"), type("Idle", (Saga,), {})),
                           (app.process_manager("s"), players())]:  # fmt: skip
        with pytest.raises(ConfigurationError):
            register(kind)
    assert [handler.name for handler in app.handlers] == []


def test_a_class_is_registered_for_what_it_is(app):
    for register, kind in [(app.aggregate("x"), sagas()), (app.saga("x"), players()),
                           (app.process_manager("x"), sagas())]:  # fmt: skip
        with pytest.raises(ConfigurationError, match="derive it from"):
            register(kind)


def test_an_aggregate_that_reacts_to_events_would_never_be_called(app):
    kind = type("Eager", (players(),), {"ask": reacts_to(Reserved)(lambda self, event: None)})
    for odd in (kind, managers()):
        with pytest.raises(ConfigurationError, match="register it with app"):
            app.aggregate("player")(odd)
    assert app._context.aggregates == {}


def test_options_reach_every_handler(app):
    limit = Limit("crm", rate=5)
    slow = f"q{uuid.uuid4().hex}"
    given = {
        "queue": slow, "policy": "no_retry", "limit": limit, "breaker": "crm",
        "max_age": timedelta(hours=2), "time_limit": 9,
    }  # fmt: skip
    app.aggregate("player", **given)(players())
    app.saga("seating", **given)(sagas())
    app.process_manager("fulfilment", **given)(managers())
    for handler in list(app.handlers):
        if handler.name == "angzarr.saga_failures":
            continue
        policy = app._context.policy_rules.named(handler.policy)
        assert (handler.queue, policy) == (slow, POLICIES["no_retry"]), handler.name
        assert handler.limits == (limit,)
        assert [guard.name for guard in handler.breakers] == ["crm"]
        assert handler.max_age == timedelta(hours=2)
        assert app.tasks[handler.name].time_limit == 9
    app.send_command(Reserve(), domain="player", root="p-1")
    assert [one.handler for one in sent(app, slow)] == ["command.player.Reserve"]


def test_an_unknown_option_of_a_policy_is_refused(app):
    with pytest.raises(ConfigurationError, match="no backoff policy 'nonsense'"):
        app.aggregate("player", policy="nonsense")(players())


def test_a_snapshot_is_kept_as_often_as_asked_for(app):
    kind = app.aggregate("player", snapshot_every=2)(players())
    for index in range(3):
        app.execute(a_command(Reserve(), "player", "p-1", id=f"c-{index}"))
    assert kind.snapshot_every == 2
    book = app._parts.chains.get().books.read(address()).book
    assert (book.snapshot.sequence, len(book.events)) == (2, 1)


def test_a_task_that_is_called_as_a_function_says_what_to_do(app):
    app.aggregate("player")(players())
    with pytest.raises(ConfigurationError, match="send the command or the event instead"):
        app.tasks["command.player.Reserve"].run({})


# -- sending -------------------------------------------------------------------------------------


def test_a_command_goes_to_the_task_of_its_aggregate(app):
    made = app.send_command(
        Reserve(amount=7), domain="player", root="p-1", edition="what-if", expected=3, id="c-7",
        tenant_id="acme", priority="realtime",
    )  # fmt: skip
    (one,) = sent(app)
    assert one.handler == "command.player.Reserve"
    assert one.event == made.event
    assert one.message.headers["id"] == task_id_for("c-7", "command.player.Reserve")
    event = one.event
    assert (event.type, event.data) == ("Reserve", {"amount": 7})
    assert (event.domain, event.root, event.edition) == ("player", "p-1", "what-if")
    assert (event.sequence, event.id, event.tenant_id) == (3, "c-7", "acme")
    assert (event.priority, event.correlation_id) == (Priority.REALTIME, "c-7")
    assert (event.causation_id, event.depth) == (None, 0)


def test_whoever_sends_a_command_needs_neither_its_aggregate_nor_books():
    with apps(broker="memory://", store="memory://") as make:
        app = make()
        root = uuid.uuid4()
        made = app.send_command(Reserve(), domain="player", root=root)
        assert made.event.root == str(root)
        assert [one.handler for one in sent(app)] == ["command.player.Reserve"]
        assert app._parts.chains.made() is None


def test_a_process_of_sagas_needs_no_books(facts_elsewhere):
    with apps(broker="memory://", store="memory://") as make:
        app = make()
        app.saga("seating", source="player")(sagas())
        event = Event(id="e-1", type="Reserved", data={}, domain="player", root="p", sequence=0)
        outcome = bring(app, "saga.seating.Reserved", event)
        assert isinstance(outcome, Handled)
        assert outcome.value == 1
        assert app._parts.chains.made() is None
        app.ops.check_books()


def test_each_command_has_an_id_of_its_own(app):
    ids = {app.send_command(Reserve(), domain="player", root="p-1").id for _ in range(3)}
    assert len(ids) == 3


def test_a_command_of_a_handler_continues_its_flow(app):
    outer = Event(id="e-1", type="t", data={}, correlation_id="flow", depth=4)
    token = RUNNING.set(delivery("h", [{}], names.to_headers(outer)))
    try:
        inner = app.send_command(Reserve(), domain="player", root="p-1").event
        other = app.send_command(
            Reserve(), domain="player", root="p-1", correlation_id="mine"
        ).event
    finally:
        RUNNING.reset(token)
    assert (inner.correlation_id, inner.causation_id, inner.depth) == ("flow", "e-1", 5)
    assert (other.correlation_id, other.causation_id) == ("mine", "e-1")


@pytest.mark.parametrize(
    ("place", "error"),
    [({"domain": "No Domain"}, InvalidDomainName), ({"domain": ""}, InvalidDomainName),
     ({"root": ""}, InvalidRoot), ({"root": "x" * 256}, InvalidRoot),
     ({"root": "\x00"}, InvalidRoot), ({"edition": "\n"}, InvalidRoot)],
    ids=repr,
)  # fmt: skip
def test_a_command_for_no_place_is_refused_before_it_is_sent(app, place, error):
    with pytest.raises(error):
        app.send_command(Reserve(), **({"domain": "player", "root": "p-1"} | place))
    assert sent(app) == []


class Odd(BaseModel, arbitrary_types_allowed=True):
    it: object = object()


@pytest.mark.parametrize("payload", [Odd(), Reserve, {"amount": 1}, "Reserve", 7, None],
                         ids=["odd", "class", "dict", "text", "number", "none"])  # fmt: skip
def test_what_is_no_command_is_refused_before_it_is_sent(app, payload):
    with pytest.raises((UnserializableEvent, NotAnEvent)):
        app.send_command(payload, domain="player", root="p-1")
    assert sent(app) == []


def test_a_command_without_a_class_is_sent_by_its_name(app):
    app.send_command(Typed("Reserve", {"amount": 7}), domain="player", root="p-1")
    (one,) = sent(app)
    assert (one.handler, one.event.data) == ("command.player.Reserve", {"amount": 7})


# -- deliveries ----------------------------------------------------------------------------------


@pytest.fixture
def room(app):
    app.aggregate("player")(players())
    app.aggregate("table")(tables())
    app.saga("seating", source="player")(sagas())
    return app


def run(app, most=20):
    """Deliver all that is in the queue until nothing is left; return what became of each."""
    app._parts.claims.leases.renew("w", timedelta(hours=1))
    ended = []
    while found := sent(app):
        ended += [(one.handler, app._runtime.executor().take(one)) for one in found]
        assert len(ended) < most, "endless"
    return ended


def test_a_rejected_command_of_a_saga_is_compensated(room):
    room.send_command(Reserve(), domain="player", root="p-1", id="c-1", correlation_id="flow")
    ended = run(room)
    assert [(task, type(outcome)) for task, outcome in ended] == [
        ("command.player.Reserve", Handled),
        ("saga.seating.Reserved", Handled),
        ("command.table.Seat", Skipped),
        ("notification.player", Handled),
    ]
    assert ended[0][1].value == {"events": 1, "first_sequence": 0}
    assert ended[2][1].reason == "rejected, and player/p-1 is told: full"
    assert ended[3][1].value == "compensated"
    assert [event.type for event in room.book("player", "p-1").events] == ["Reserved", "Released"]
    assert {event.correlation_id for event in room.book("player", "p-1").events} == {"flow"}
    assert room.load(room._context.aggregates["player"], "p-1").state == Funds(reserved=0)


def test_a_rejected_command_that_is_delivered_twice_is_told_once(room):
    """Its notification comes twice, under one id and with one body: the second is a duplicate."""
    room._parts.claims.leases.renew("w", timedelta(hours=1))
    command = a_command(Seat(), "table", "t-1",
                        origin=Origin(saga="seating", source=address(), sequence=0))  # fmt: skip
    room.execute(a_command(Reserve(), "player", "p-1", id="c-0"))
    sent(room)
    room._parts.outbox.send([command])
    (one,) = sent(room)
    for _ in range(2):
        with pytest.raises(Skip, match="is told"):
            room.handlers.get(one.handler).bind(one, context_of(one))()
    outcomes = [outcome for _, outcome in run(room)]
    assert [type(outcome) for outcome in outcomes] == [Handled, Duplicate]


def context_of(one):
    return Context(
        delivery=one, make_policy=lambda: POLICIES["default"], make_log=lambda _fields: None
    )


@pytest.mark.parametrize(
    ("task", "event"),
    [("command.player.Reserve", a_command(Reserve(), "player", "p-1").event),
     ("saga.seating.Reserved", Event(id="e", type="Reserved", data={}, domain="player")),
     ("notification.player", to_event(a_rejection(Seat())))],
    ids=["command", "saga", "notification"],
)  # fmt: skip
def test_data_that_does_not_fit_is_a_letter_before_anything_is_claimed(room, task, event):
    odd = Event(id="e-1", type=event.type, data={"amount": "s3cret"}, domain="player", root="p-1")
    outcome = bring(room, task, odd)
    assert isinstance(outcome, DeadLettered)
    assert outcome.claimed is False
    assert outcome.letter.error_type.endswith("DecodeError")
    assert "s3cret" not in outcome.letter.error_message


@pytest.mark.parametrize(
    ("task", "change"),
    [("command.player.Reserve", {names.EVENT_TYPE: "Audit"}),
     ("command.player.Reserve", {names.DOMAIN: "table"}),
     ("command.player.Reserve", {names.EVENT_TYPE: ""}),
     ("command.player.Reserve", {names.DOMAIN: ""}),
     ("saga.seating.Reserved", {names.EVENT_TYPE: "Released"})],
    ids=repr,
)  # fmt: skip
def test_a_message_for_another_task_is_a_letter_before_anything_is_claimed(room, task, change):
    """What is carried out is what the task was checked for, and switched off by."""
    event = Event(id="e-1", type=task.rpartition(".")[2], data={}, domain="player", root="p-1")
    outcome = bring(room, task, event, **change)
    assert isinstance(outcome, DeadLettered)
    assert outcome.claimed is False
    assert "this task takes" in outcome.letter.error_message
    assert room.book("player", "p-1").next_sequence == 0


def test_events_of_other_domains_than_the_source_are_skipped(room):
    for domain in ("bank", None):
        event = Event(id=f"e-{domain}", type="Reserved", data={}, domain=domain, root="p-1")
        outcome = bring(room, "saga.seating.Reserved", event)
        assert isinstance(outcome, Skipped)
        assert "the saga takes events of the domain 'player'" in outcome.reason
    assert sent(room) == []


def test_a_saga_without_a_source_takes_the_events_of_all_domains(app):
    app.saga("seating")(sagas())
    for domain in ("bank", None):
        event = Event(id=f"e-{domain}", type="Reserved", data={}, domain=domain, root="p-1")
        assert isinstance(bring(app, "saga.seating.Reserved", event), Handled)
    assert len(sent(app)) == 2


def test_a_circle_ends_as_a_letter(make_app, tmp_path):
    path = tmp_path / "angzarr.yaml"
    path.write_text(json.dumps({"saga_compensation": {"max_depth": 5}}))
    app = make_app(config=path)

    class Circle(Saga):
        @reacts_to(Reserved)
        def again(self, _event: Reserved) -> Send:
            return Send(Reserve(), domain="player", root="p-1")

    app.aggregate("player")(players())
    app.saga("circle")(Circle)
    app.send_command(Reserve(), domain="player", root="p-1")
    ended = run(app)
    assert [type(outcome) for _, outcome in ended] == [Handled] * 6 + [DeadLettered]
    letter = ended[-1][1].letter
    assert letter.error_type.endswith("ChainTooDeep")
    assert letter.message.headers[names.DEPTH] == 6


def test_a_circle_by_way_of_a_handler_that_publishes_ends_too(make_app, tmp_path):
    path = tmp_path / "angzarr.yaml"
    path.write_text(json.dumps({"saga_compensation": {"max_depth": 5}}))
    app = make_app(config=path)
    app.aggregate("player")(players())

    class Again(BaseModel):
        pass

    @app.handler(Reserved, name="relay")
    def relay(_event: Reserved) -> None:
        app.publish(Again())

    class Circle(Saga):
        @reacts_to(Again)
        def again(self, _event: Again) -> Send:
            return Send(Reserve(), domain="player", root="p-1")

    app.saga("circle")(Circle)
    app.send_command(Reserve(), domain="player", root="p-1")
    ended = run(app)
    assert isinstance(ended[-1][1], DeadLettered)
    assert len(ended) == 7


def test_a_notification_for_an_aggregate_that_nobody_takes_is_a_letter(app):
    outcome = bring(app, "notification.player", to_event(a_rejection(Seat())))
    assert isinstance(outcome, DeadLettered)
    assert outcome.letter.error_code == "UNKNOWN_TASK"


def test_compensations_that_failed_are_counted_and_said(room, caplog):
    rejection = a_rejection(Seat(), source=address(root="nobody"))
    outcome = bring(room, "notification.player", to_event(rejection))
    assert isinstance(outcome, DeadLettered)
    assert outcome.letter.reason == "compensation"
    assert "saga_escalated" in caplog.text
    ((task, ended),) = run(room)
    assert (task, type(ended)) == ("angzarr.saga_failures", Handled)
    assert "saga_compensation_failed" in caplog.text


def test_a_failed_compensation_is_said_without_secrets_and_in_short(make_app, tmp_path, caplog):
    path = tmp_path / "angzarr.yaml"
    path.write_text(json.dumps({"dlq": {"redact_text": ["s3cret-[0-9]+"]}}))
    app = make_app(config=path)
    app.aggregate("player")(players())
    rejection = a_rejection(Seat(), reason="s3cret-17 " + "x" * 9_000)
    bring(app, "angzarr.saga_failures", failure_event(rejection, "s3cret-18", "f", START))
    assert "saga_compensation_failed" in caplog.text
    assert "s3cret" not in caplog.text
    assert len(caplog.text) < 5_000


def test_a_sender_that_is_not_told_has_a_letter(room):
    room.send_command(Seat(), domain="table", root="t-1")
    ((_, outcome),) = run(room)
    assert isinstance(outcome, DeadLettered)
    assert outcome.letter.error_message == "full"


_odd = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text()
    | st.sampled_from(["player", "p-1", "0", "Reserve", "Reserved", "angzarr.Notification"])
)  # fmt: skip
_headers = st.dictionaries(
    st.sampled_from([
        names.EVENT_TYPE, names.DOMAIN, names.ROOT, names.EDITION, names.SEQUENCE, names.DEPTH,
        names.SAGA, names.SOURCE_DOMAIN, names.SOURCE_ROOT, names.SOURCE_EDITION,
        names.SOURCE_SEQUENCE, names.CORRELATION_ID, names.CONFIG_PINS, names.TENANT_ID,
    ]), _odd,
)  # fmt: skip
_bodies = st.sampled_from([{}, {"amount": 1}, {"amount": 101}, to_event(a_rejection(Seat())).data])
_json = st.recursive(_odd, lambda inner: st.dictionaries(st.text(), inner, max_size=3))
_tasks = ("command.player.Reserve", "command.table.Seat", "notification.player",
          "saga.seating.Reserved", "process.fulfilment.Reserved")  # fmt: skip


def test_whatever_a_queue_brings_comes_to_an_end(facts_elsewhere, tmp_path):
    """None is given back or waited for: every one is handled, skipped or a letter."""
    path = tmp_path / "angzarr.yaml"
    path.write_text(json.dumps({"poison_wave": {"enabled": False}}))  # it would keep them all
    with apps(broker="memory://", store="memory://", books="memory://", config=path) as make:
        app = make()
        app.aggregate("player")(players())
        app.aggregate("table")(tables())
        app.saga("seating", source="player")(sagas())
        app.process_manager("fulfilment")(managers())
        seen = set()

        @settings(max_examples=150, deadline=None)
        @given(st.sampled_from(_tasks), _headers, _bodies | _json)
        @example("command.player.Reserve", {}, {})
        @example("command.table.Seat", {}, {})
        @example("saga.seating.Reserved", {names.DOMAIN: "bank"}, {})
        def brought(task, headers, body):
            said = {names.EVENT_TYPE: task.rpartition(".")[2], names.DOMAIN: task.split(".")[1],
                    names.ROOT: "p-1", names.EVENT_ID: uuid.uuid4().hex}  # fmt: skip
            app._parts.claims.leases.renew("w", timedelta(hours=1))
            outcome = app._runtime.executor().take(delivery(task, [body], said | headers))
            assert isinstance(outcome, Handled | Skipped | DeadLettered)
            seen.add(type(outcome))

        brought()
        sent(app)
        assert seen == {Handled, Skipped, DeadLettered}


# -- here and now --------------------------------------------------------------------------------


def test_a_command_that_is_executed_publishes_its_events_again_when_repeated(room):
    command = a_command(Reserve(), "player", "p-1")
    one, two = room.execute(command), room.execute(command)
    assert one == two
    assert [one.handler for one in sent(room)] == ["saga.seating.Reserved"] * 2
    assert room.book("player", "p-1").next_sequence == 1


def test_a_rejection_is_raised_to_whoever_executes(room):
    with pytest.raises(CommandRejectedError, match="too much"):
        room.execute(a_command(Reserve(amount=101), "player", "p-1"))
    assert sent(room) == []


def test_what_nobody_takes_is_raised_to_whoever_executes(room):
    with pytest.raises(UnknownCommand):
        room.execute(a_command(Reserve(), "bank", "p-1"))


def test_a_command_for_review_is_a_letter_and_an_error(room):
    room.execute(a_command(Reserve(), "player", "p-1"))
    audit = Event(id="c-2", type="Audit", data={}, domain="player", root="p-1", sequence=0)
    with pytest.raises(CommandAbortedError) as caught:
        room.execute(Command(event=audit))
    assert caught.value.review
    (letter,) = letters(room, "c-2")
    assert letter.reason == "sequence_mismatch"
    assert letter.handler == "command.player.Audit"


def letters(app, event_id):
    """Take the letters of an event; the queue is that of the whole process."""
    queue = app._parts.salvage.get().dead_letters
    receipts = queue.receive(["player"], limit=1000, wait=timedelta(0))
    queue.done(receipts)
    found = [receipt.letter for receipt in receipts]
    return [one for one in found if one.message.headers.get(names.EVENT_ID) == event_id]


def test_an_intent_is_built_from_what_is_there_and_its_events_are_published(room):
    seen = []

    def build(_intent, book):
        seen.append(book.next_sequence)
        if len(seen) == 1:
            room.execute(a_command(Reserve(), "player", "p-1", id="other"))
        return Reserve(amount=7)

    decision = room.execute_with_retry(Intent(address=Address("player", "p-1")), build)
    assert seen == [0, 1]
    assert [event.data for event in decision.events] == [{"amount": 7}]
    assert len(sent(room)) == 2


def test_an_intent_that_is_never_taken_is_a_letter(room, monkeypatch):
    monkeypatch.setattr("angzarr.clock.SystemClock.sleep", lambda _self, _span: None)

    def refuse(_self, _command):
        raise SequenceConflictError("stale")

    monkeypatch.setattr("angzarr.aggregates.decider.Decider.execute", refuse)
    with pytest.raises(MaxRetriesExceededError):
        room.execute_with_retry(
            Intent(address=Address("player", "p-1"), id="i-1"), lambda *_: Reserve()
        )
    (letter,) = letters(room, "i-1")
    assert (letter.reason, letter.handler) == ("exhausted", "command.player.Reserve")


def test_an_aggregate_is_read_as_it_is_now(room):
    kind = room._context.aggregates["player"]
    assert room.load(kind, "p-1").state == Funds()
    assert room.book("player", "p-1").events == ()
    room.execute(a_command(Reserve(), "player", "p-1", edition="what-if"))
    assert room.load(kind, "p-1").state == Funds()
    assert room.load(kind, "p-1", "what-if").state == Funds(reserved=5)
    assert len(room.book("player", "p-1", "what-if").events) == 1


@pytest.mark.parametrize("root", ["", "x" * 256, "\x00"])
def test_no_aggregate_is_read_at_no_place(room, root):
    with pytest.raises(InvalidRoot):
        room.book("player", root)
    with pytest.raises(InvalidRoot):
        room.load(room._context.aggregates["player"], root)


# -- what is sent --------------------------------------------------------------------------------


def test_what_the_outbox_sends_is_what_is_read(room):
    rejection = a_rejection(Seat(), correlation_id="flow")
    room._parts.outbox.tell(rejection)
    room._parts.outbox.tell(rejection)
    one, two = sent(room)
    assert one.handler == "notification.player"
    assert from_event(one.event) == rejection
    assert one.message.headers["id"] == two.message.headers["id"]
    assert one.fingerprint == two.fingerprint


def test_an_event_that_nobody_takes_is_published_to_nobody(room):
    room._parts.outbox.publish([])
    room._parts.outbox.publish([Event(id="e", type="Nothing", data={}, domain="player", root="p")])
    assert sent(room) == []


def test_a_worker_with_aggregates_and_without_books_is_refused():
    with apps(broker="redis://127.0.0.1:1", store="memory://") as make:
        app = make()
        app.ops.check_books()
        try:
            app.aggregate("player")(players())
            with pytest.raises(ConfigurationError, match="no database is configured"):
                app.ops.check_books()
        except MissingExtra:
            pytest.skip("no client of Redis is installed")


@pytest.mark.parametrize("expected", [-1, MAX_SEQUENCE + 1, True, "3"])
def test_a_command_with_an_expectation_that_is_no_sequence_is_refused(app, expected):
    with pytest.raises(ValueError, match="expected is the sequence that a book is at"):
        app.send_command(Reserve(), domain="player", root="p-1", expected=expected)
    assert sent(app) == []


def test_a_command_without_a_root_is_refused(app):
    with pytest.raises(InvalidRoot, match="root must be a string or a UUID"):
        app.send_command(Reserve(), domain="player", root=None)


def test_a_saga_and_a_process_manager_share_no_name(app):
    class One(Saga):
        @reacts_to(Reserved)
        def react(self, _event: Reserved) -> None: ...

    class Other(ProcessManager[Funds]):
        @reacts_to(Reserved)
        def react(self, _event: Reserved) -> None: ...

    app.saga("one-name")(One)
    with pytest.raises(ConfigurationError, match=r"'one-name' is the name of .*One and of .*Other"):
        app.process_manager("one-name")(Other)


@pytest.mark.parametrize("header", ["-1", "x", MAX_SEQUENCE + 1, [3]])
def test_a_command_whose_expectation_cannot_be_read_is_a_letter_and_not_carried_out(room, header):
    event = a_command(Reserve(), "player", "p-1").event
    outcome = bring(room, "command.player.Reserve", event, **{names.SEQUENCE: header})
    assert isinstance(outcome, DeadLettered)
    assert outcome.claimed is False
    assert "angzarr-sequence is not a sequence" in outcome.letter.error_message
    assert room.book("player", "p-1").next_sequence == 0
