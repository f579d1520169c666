"""The consumer in a worker's parent: what it holds back, and what it buries."""

from __future__ import annotations

import errno
import json
import os
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from celery import bootsteps
from celery.worker import state
from celery.worker.consumer import Consumer
from kombu.exceptions import DecodeError
from kombu.transport.virtual import Message

from angzarr.adapters.celery.claim_batch import BATCHED_CLAIM, BatchedClaim, ClaimBatch
from angzarr.adapters.celery.worker import consumer_state as receipts
from angzarr.adapters.celery.worker import settle_thread, settlement
from angzarr.adapters.celery.worker.consumer import AngzarrConsumer
from angzarr.adapters.celery.worker.queue_pauser import QueuePauser
from angzarr.clock import follow
from angzarr.dead_letters import codec
from angzarr.dead_letters.text import to_json_text
from angzarr.errors import DeliveryError
from angzarr.events import headers as names
from angzarr.resilience.idempotency import Claim, Claimed, InProgress, Position, key_for
from polling import wait_until


class Hub:
    """Timers that a test fires by hand, and calls that are made at once."""

    def __init__(self):
        self.timers = []
        self.timer = SimpleNamespace(queue=())

    def call_repeatedly(self, _seconds, call):
        self.timers.append(call)

    def call_soon(self, call):
        call()


@pytest.fixture
def app(make_app):
    app = make_app(facts={"log": False})

    @app.task(name="t")
    def t(*args):
        """Do nothing."""

    app._runtime.begin_work()
    yield app
    app._runtime.end_work()


@pytest.fixture
def consumer(app):
    app.finalize(auto=True)
    controller = SimpleNamespace(app=app, semaphore=None, use_eventloop=True)
    made = AngzarrConsumer(
        lambda _request: None, app=app, hub=Hub(), controller=controller,
        pool=SimpleNamespace(is_green=False), timer=None, hostname="h",
    )  # fmt: skip
    made.connection_errors = (OSError,)
    return made


class Taken:
    """A message of kombu's, and what became of it."""

    def __init__(self, payload=([], {}, {}), **headers):
        self.headers = {"task": "t", "id": "a", **headers}
        self.payload, self.body = [*payload], json.dumps(payload)
        self.content_type, self.content_encoding = "application/json", "utf-8"
        self.properties, self.delivery_info = {}, {"routing_key": "q"}
        self.acknowledged = False
        self.ends = []

    def ack_log_error(self, *_):
        self.acknowledged = True
        self.ends.append("acknowledged")

    def reject_log_error(self, *_, requeue=False):
        self.acknowledged = True
        self.ends.append("given back" if requeue else "dropped")


@pytest.fixture
def put(app, monkeypatch):
    """The letters that were put; messages that go back do so at once."""
    monkeypatch.setattr(settlement, "LOST_PAUSE", 0.0)
    monkeypatch.setattr(receipts, "FIRST_PAUSE", 0.0)
    app._runtime.movement.receipts = receipts.ReceiptFailures()
    app._runtime.movement.receipts._pause = 0.0
    letters = []
    app._runtime.settlement._salvage.dead_letters.put = lambda given: (
        letters.extend(given) or [None]
    )
    return letters


def an_envelope():
    return {
        "body": "[[], {}, {}]", "headers": {"task": "t", "id": "a"},
        "content-type": "application/json", "content-encoding": "utf-8",
        "properties": {
            "delivery_tag": "tag", "delivery_info": {"exchange": "", "routing_key": "celery"},
        },
    }  # fmt: skip


def message_in(envelope):
    """The message that kombu makes of *envelope*; that it was acknowledged is noted."""
    message = Message(envelope, channel=SimpleNamespace(decode_body=lambda body, _: body))
    message.ends = []
    message.ack_log_error = lambda *_: message.ends.append("acknowledged")
    return message


def test_a_queue_that_was_closed_before_a_new_connection_is_opened_after_it(app, consumer):
    @app.handler("Order", domain="order", name="o", queue="orders")
    def order(event: dict) -> None:
        """Do nothing."""

    app._context.held_domains.begin(["order"])
    consumed = {"orders"}
    consumer.task_consumer = SimpleNamespace(
        consuming_from=consumed.__contains__, channel=None, _active_tags={}
    )
    consumer._queue_pauser = QueuePauser(
        consumer, app._runtime.holding, stop=consumed.discard, resume=consumed.add
    )

    def turn():
        consumer.register_with_event_loop(consumer.hub)  # as with every new connection
        consumer.hub.timers.pop()()

    app._context.held_domains.hold("order", datetime.now(UTC) + timedelta(minutes=1))
    turn()
    assert consumed == set()
    app._context.held_domains.hold("order", datetime.now(UTC) - timedelta(minutes=1))
    turn()
    assert consumed == {"orders"}


def test_a_child_tells_its_parent_of_a_wave_where_no_fleet_shares_its_breakers(make_app, app):
    assert app._runtime.executor().poison_wave_breaker.on_held == app._context.held_domains.hold
    fleet = make_app(flow={"store": "redis://127.0.0.1:1/0"})
    assert fleet._runtime.executor().poison_wave_breaker.on_held is None, (
        "it would keep a queue closed that a reset opens"
    )


def test_without_an_event_loop_it_is_turned_between_two_messages(consumer, monkeypatch):
    turns = []
    monkeypatch.setattr("angzarr.adapters.celery.worker.consumer.TURN_EVERY", 3600.0)
    consumer._queue_pauser = SimpleNamespace(turn=lambda: turns.append(True))
    consumer.perform_pending_operations()
    assert not turns, "its loop does it"
    consumer.hub = None
    consumer.perform_pending_operations()
    consumer.perform_pending_operations()
    assert len(turns) == 1
    consumer._turn_due -= 3600.0
    consumer.perform_pending_operations()
    assert len(turns) == 2


def test_a_valve_that_fails_ends_no_worker_but_a_lost_connection_is_told(consumer, caplog):
    def fail(error):
        def turn():
            raise error

        consumer._queue_pauser, consumer.hub, consumer._turn_due = (
            SimpleNamespace(turn=turn),
            None,
            0.0,
        )
        consumer.perform_pending_operations()

    fail(KeyError("odd"))
    assert "valve_failed" in caplog.text
    with pytest.raises(ConnectionResetError):
        fail(ConnectionResetError())


def test_what_was_claimed_with_its_fetch_and_cannot_be_read_leaves_no_claim(app, consumer, put):
    store = app._runtime.settlement._executor.claimer.store
    bounds = app.settings.message.bounds
    claim_batch = ClaimBatch(app.handlers, store, app._parts.tenure, app._runtime.owner, bounds)
    message = Taken()
    claim_batch.claim([message])
    ride: BatchedClaim = getattr(message, BATCHED_CLAIM)
    assert isinstance(ride.answer, Claimed)
    key = key_for("t", "a")
    replay = Claim(
        key=key, token="replay", owner=app._runtime.owner, position=Position(1, 0), fingerprint=""
    )
    assert store.claim([replay]) == [InProgress()], "as long as this worker lives"
    consumer.on_invalid_task(None, message, ValueError("malformed"))
    wait_until(lambda: message.ends)
    assert [letter.error_code for letter in put] == ["INVALID_TASK"]
    (answer,) = store.claim([replay])
    assert isinstance(answer, Claimed)


def test_what_cannot_be_read_ends_what_waits_for_it_before_it_is_acknowledged(
    app, consumer, put, monkeypatch
):
    told = []

    def mark_as_failure(_self, task_id, error, request, **_options):
        assert not message.ends
        told.append((task_id, str(error), request.chain))

    monkeypatch.setattr(type(app.backend), "mark_as_failure", mark_as_failure)
    follows = dict(app.tasks["t"].si())
    message = Taken([[], ["no mapping"], {"chain": [follows]}])
    consumer.on_invalid_task(None, message, ValueError("malformed"))
    wait_until(lambda: message.ends, seconds=60)
    assert told == [("a", "malformed", [json.loads(json.dumps(follows))])]


@pytest.mark.parametrize("way", ["a letter", "a wait"])
def test_what_the_parent_can_never_settle_goes_back_and_it_is_said(
    app, consumer, monkeypatch, caplog, way
):
    """For an error of our own; a server that is away is waited for."""

    def never(*_):
        raise KeyError("ours")

    monkeypatch.setattr(settle_thread, "LONGEST_WAIT", timedelta(milliseconds=1))
    message = Taken()
    if way == "a letter":
        app._runtime.settlement._salvage.dead_letters.put = never
        consumer.on_invalid_task(None, message, ValueError("malformed"))
    else:
        app._runtime.settlement._executor.settler.schedule.put = never
        message.headers["eta"] = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        consumer.strategies["t"] = None
        assert consumer._waits(message)
    wait_until(lambda: message.ends)
    assert message.ends == ["given back"]
    assert "gave_up: message 'a'" in caplog.text


@pytest.mark.parametrize("field", ["priority", "routing_key", "headers", "body"])
@pytest.mark.parametrize("ending", ["received", "undecodable", "not a task"])
def test_a_damaged_message_is_a_letter_of_all_that_came(consumer, put, field, ending):
    envelope = an_envelope()
    place = {
        "priority": envelope["properties"],
        "routing_key": envelope["properties"]["delivery_info"],
    }
    place.get(field, envelope)[field] = {"odd": 5}
    if field == "headers":
        envelope["headers"] = {"task": "t", "id": "a", 5: "a name that is none"}
    message = message_in(envelope)
    match ending:
        case "received":
            consumer.create_task_handler()(message)
        case "undecodable":
            consumer.on_decode_error(message, ValueError("no gzip"))
        case _:
            consumer.on_unknown_message(None, message)
    wait_until(lambda: message.ends)
    (letter,) = put
    assert (letter.error_code, letter.error_type) == ("DAMAGED_ENVELOPE", "DamagedEnvelope")
    assert field in letter.error_message
    assert letter.message.body == to_json_text(envelope).encode()
    assert codec.decode(*codec.encode(letter)).message == letter.message


def test_a_bomb_is_a_letter_before_it_is_parsed(consumer, put):
    body = "[[[" + "[]," * 200_000 + "[]]], {}, {}]"
    message = message_in({**an_envelope(), "body": body})
    consumer.create_task_handler()(message)
    wait_until(lambda: message.ends)
    (letter,) = put
    assert (letter.error_code, letter.message.body) == ("UNDECODABLE", body.encode())
    assert "raise message.most_values" in letter.explanation
    assert message._decoded_cache is None


def an_eta(consumer, eta):
    """A message of the task ``t`` for *eta*, and what the consumer makes of it."""
    consumer.strategies["t"] = None
    message = Taken(eta=eta)
    return message, consumer._waits(message)


@pytest.fixture
def put_early(app):
    put = []
    app._runtime.settlement._executor.settler.schedule.put = lambda *told: put.append(told)
    yield put
    follow(None)


@pytest.mark.parametrize("off", [timedelta(hours=2), timedelta(minutes=-10), timedelta(days=-400)])
def test_an_eta_is_judged_by_the_stores_clock_whatever_the_machines_says(consumer, put_early, off):
    """The machine is *off*: it would run a countdown at once, or keep what is due for itself."""
    there = datetime.now(UTC) - off
    follow(there)
    due, waits = an_eta(consumer, (there - timedelta(seconds=1)).isoformat())
    assert not waits
    assert due.headers["eta"] is None, "Celery would keep it until its own clock agrees"
    _, waits = an_eta(consumer, (there + timedelta(minutes=1)).isoformat())
    assert waits
    wait_until(lambda: put_early, "it to be put into the schedule")
    ((kept, at),) = put_early
    assert abs(at - there - timedelta(minutes=1)) < timedelta(seconds=1)
    assert kept.headers["eta"] is None


def test_what_is_due_within_a_moment_is_slept_by_whoever_runs_it(consumer, put_early):
    message, waits = an_eta(consumer, (datetime.now(UTC) + timedelta(seconds=0.09)).isoformat())
    assert not waits
    assert 0 < message.headers[names.REST] <= 90


def test_what_can_never_wait_is_a_letter_and_is_acknowledged(
    app, consumer, put, put_early, monkeypatch
):
    def never(*_given):
        raise DeliveryError("it can never be read again")

    acknowledged = []
    app._runtime.settlement._executor.settler.schedule.put = never
    monkeypatch.setattr(consumer, "_acknowledge", acknowledged.append)
    message, waits = an_eta(consumer, (datetime.now(UTC) + timedelta(minutes=1)).isoformat())
    assert waits
    wait_until(lambda: acknowledged, "it to be acknowledged")
    assert acknowledged == [message]
    assert [letter.error_code for letter in put] == ["CANNOT_WAIT"]
    assert put_early == []


@pytest.mark.parametrize("eta", ["tomorrow", 5, ["x"], "99999999-01-01T00:00:00"])
def test_an_eta_that_is_no_time_is_left_to_those_who_make_letters(consumer, eta):
    message, waits = an_eta(consumer, eta)
    assert not waits
    assert message.headers["eta"] == eta


def received(consumer, message, error):
    """Let Celery's part raise *error* on *message*."""

    def receive(_message):
        raise error

    consumer._receipts = consumer.app._runtime.movement.receipts
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Consumer, "create_task_handler", lambda *_args, **_options: receive)
        consumer.create_task_handler()(message)


MACHINE = [MemoryError(), RuntimeError("can't start new thread")]


def wrapped(error):
    return DecodeError(error)


@pytest.mark.parametrize("error", MACHINE, ids=repr)
@pytest.mark.parametrize("way", ["receive", "decode", "invalid", "foreign", "unknown"])
def test_a_fault_of_the_machine_gives_back_by_every_way_out(consumer, put, way, error):
    message = Taken()
    if way == "receive":
        received(consumer, message, error)
    elif way == "decode":
        consumer.on_decode_error(message, wrapped(error))
    elif way == "invalid":
        consumer.on_invalid_task(None, message, wrapped(error))
    else:

        class Fails(Taken):
            payload = property(lambda _: (_ for _ in ()).throw(error), lambda *_: None)

        message = Fails()
        if way == "foreign":
            received(consumer, message, ValueError("a bug of ours"))
        else:
            consumer.on_unknown_task(None, message, KeyError("t"))
    wait_until(lambda: message.ends)
    assert (message.ends, put) == (["given back"], [])


def test_what_is_known_to_be_the_messages_fault_is_a_letter_at_once(consumer, put):
    message = Taken(id=7)
    received(consumer, message, TypeError("unhashable"))
    wait_until(lambda: message.ends)
    assert message.ends == ["acknowledged"]
    (letter,) = put
    assert (letter.error_code, letter.error_message) == (
        "INVALID_TASK",
        "its id is not a string: 7",
    )


def test_a_message_that_brings_out_a_bug_goes_back_twice_and_is_a_letter_then(consumer, put):
    ends = []
    for _ in range(3):
        message = Taken()
        received(consumer, message, KeyError("a bug"))
        wait_until(lambda: message.ends)  # noqa: B023 - waited for here
        ends += message.ends
    assert ends == ["given back", "given back", "acknowledged"]
    assert [letter.error_code for letter in put] == ["NOT_TAKEN"]


@pytest.mark.parametrize("error", [*MACHINE, KeyError("a bug")], ids=repr)
def test_a_delivery_that_has_its_end_gets_no_second_one(consumer, put, error):
    message = Taken()
    message.acknowledged = True
    received(consumer, message, error)
    assert (message.ends, put) == ([], [])
    assert consumer.app._runtime.settlement.idle


def test_a_lost_connection_is_none_of_it(consumer, put):
    with pytest.raises(ConnectionResetError):
        received(consumer, Taken(), ConnectionResetError())
    assert not put


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_too_many_open_files_are_a_lost_connection_and_no_end(request, monkeypatch, caplog, number):
    """Celery would raise WorkerTerminate, with which the process exits with code 0."""
    tries = []

    def start(blueprint, _parent):
        tries.append(blueprint)
        if len(tries) == 1:
            raise OSError(number, os.strerror(number))
        blueprint.state = bootsteps.TERMINATE

    monkeypatch.setattr(bootsteps.Blueprint, "start", start)
    consumer = request.getfixturevalue("consumer")
    consumer._restart_state = SimpleNamespace(step=lambda: None)
    for skipped in ("on_connection_error_before_connected", "on_close"):
        monkeypatch.setattr(consumer, skipped, lambda *_: None)
    monkeypatch.setattr(consumer.blueprint, "restart", lambda *_: None)
    consumer.start()
    assert len(tries) == 2
    assert "too_many_open_files" in caplog.text


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_lost_connection_frees_the_claims_of_what_no_process_began(
    app, consumer, monkeypatch, pool
):
    """What was sent to a process, or lies before a thread, runs and ends its claim itself."""
    freed, requests = [], {}
    monkeypatch.setattr(ClaimBatch, "release", lambda _batch, claims: freed.extend(claims))
    for name in ("begun", "sent", "of a sent batch", "in line", "gathered", "throttled"):
        message = SimpleNamespace(**{BATCHED_CLAIM: name})
        requests[name] = Waiting(name, message)
    requests["of a sent batch"].pool_job = "sent"
    consumer.batches = SimpleNamespace(forget=lambda: [requests["gathered"]])
    waiting = [one for name, one in requests.items() if name != "throttled"]
    monkeypatch.setattr(state, "reserved_requests", set(waiting))
    monkeypatch.setattr(state, "active_requests", {requests["begun"]})
    throttled = [(requests["throttled"], 1)]
    bucket = SimpleNamespace(contents=throttled, clear_pending=throttled.clear)
    consumer.task_buckets = {"t": bucket}
    jobs = {1: SimpleNamespace(correlation_id="begun"), 2: SimpleNamespace(correlation_id="sent")}
    billiard = {"_pool": SimpleNamespace(_cache=jobs)} if pool == "prefork" else {}
    consumer.pool = SimpleNamespace(flush=None, is_green=False, **billiard)
    consumer.on_close()
    unsent = ["in line"] if pool == "prefork" else []
    assert sorted(freed) == sorted([*unsent, "gathered", "throttled"])


class Waiting:
    """A request of Celery's."""

    def __init__(self, name, message):
        self.id, self.message, self._eta_timer_entry = name, message, None
        self.pool_job = name
