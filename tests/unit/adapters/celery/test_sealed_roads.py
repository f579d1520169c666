"""What came encrypted goes on encrypted, by every road, from a worker that encrypts nothing itself.

The publisher is another process, which encrypts all. The worker has the key, and `encrypt: none`.
"""

from __future__ import annotations

import base64
import json
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from celery import chain, chord
from kombu import Producer

from angzarr import Angzarr, GiveUp, Policy
from angzarr.adapters.celery.publish import body_offloader
from angzarr.adapters.celery.publish.compensations import CeleryCompensations
from angzarr.adapters.celery.publish.outbox import CeleryOutbox
from angzarr.adapters.celery.publish.sealed_sends import (
    origin_of_task,
    sealing_as,
    sealing_by,
    sealing_origin,
    trace_of,
)
from angzarr.adapters.celery.worker.tracer import RoadTracer
from angzarr.aggregates.book import Address
from angzarr.aggregates.command import Command, Origin
from angzarr.analysis.replay.compensation import Call
from angzarr.delivery.context import RUNNING
from angzarr.delivery.sealed_origin import SealedOrigin
from angzarr.delivery.settle import Settler
from angzarr.errors import PayloadKeyMissing, UnserializableEvent
from angzarr.events import headers as names
from angzarr.events.event import Event
from angzarr.events.headers import OwnHeaders
from angzarr.payloads.claim_check import HEADER, check_in
from angzarr.sagas.rejection import Rejection
from angzarr.testing.clock import FakeClock
from angzarr.testing.staging import staged
from angzarr.testing.worker import open_in_process

CANARY = "the canary sings"
ONCE = Policy(
    name="once", base=timedelta(seconds=1), max_delay=timedelta(seconds=1), max_attempts=1
)
KEYS = {name: base64.b64encode(name[-1:].encode() * 32).decode() for name in ("k1", "acme-1")}
#: As another process publishes, which encrypts all.
ORIGIN = SealedOrigin("k1")


@pytest.fixture(params=["small", "large"])
def secret(request):
    """What must be read nowhere: small enough for a message, or so large that it is stored."""
    return CANARY if request.param == "small" else CANARY * 200


@pytest.fixture
def app():
    made = Angzarr("sealed", broker="memory://", backend="cache+memory://")
    made.conf.task_send_sent_event = True
    made.ran = []

    @made.task(name="keep")
    def keep(*texts, **named):
        made.ran.append(("keep", *texts, *named.values()))
        return "kept"

    @made.task(name="clean_up")
    def clean_up(text):
        made.ran.append(("clean_up", text))

    @made.task(name="fails", policy=ONCE)
    def fails(_text):
        raise GiveUp("for good")

    @made.task(name="again", bind=True)
    def again(self, text, countdown=0):
        made.ran.append(("again", text))
        if self.request.retries == 0:
            self.retry(args=[f"{text} again", countdown], countdown=countdown)

    @made.task(name="moves_on", bind=True)
    def moves_on(self, _text):
        raise self.replace(keep.s("moved"))

    @made.task(name="sends_its_own")
    def sends_its_own(_text):
        keep.delay("its own")

    return made


@pytest.fixture
def sent(monkeypatch):
    """All that leaves for the broker, as it leaves, with its headers."""
    seen = []
    publish = Producer._publish

    def record(self, body, priority, content_type, content_encoding, headers, *more, **options):
        seen.append((body if isinstance(body, str) else body.decode(), dict(headers)))
        given = (body, priority, content_type, content_encoding, headers)
        return publish(self, *given, *more, **options)

    monkeypatch.setattr(Producer, "_publish", record)
    return seen


@pytest.fixture(params=["none", "stored"])
def worker(app, request, tmp_path):
    bodies = tmp_path / "bodies"
    payloads = {
        "url": f"file://{bodies}",
        "over": 2000,
        "encryption_keys": KEYS,
        "encryption_key": "k1",
        "tenant_keys": {"acme": "acme-1"},
        "encrypt": request.param,
    }
    clock = FakeClock()
    with (
        staged(app, tmp_path, clock, settings={"payloads": payloads}, chance=lambda: 0.0),
        open_in_process(app, clock) as opened,
    ):
        opened.files = lambda: [one for one in bodies.rglob("*") if one.is_file()]
        yield opened


@pytest.fixture
def goes(app, worker, sent):
    """Publish *signature* as the other process does; return what ran, once nothing is told."""

    def run(signature, **options):
        with sealing_as(ORIGIN):
            signature.apply_async(**options)
        worker.run_until_settled()
        shown = [one for one in sent if CANARY in f"{one}"]
        assert shown == [], "on the broker"
        assert not any(CANARY.encode() in one.read_bytes() for one in worker.files())
        tasks = [headers for _, headers in sent if headers.get("task")]
        assert all(HEADER in headers for headers in tasks), "each of them came of the first"
        assert len([one for one in sent if not one[1].get("task")]) >= 1, "Celery's events, too"
        return app.ran

    return run


@pytest.mark.parametrize("countdown", [0, 60])
def test_a_retry_with_other_arguments(app, worker, goes, secret, countdown):
    assert goes(app.tasks["again"].s(secret, countdown)) == [
        ("again", secret),
        ("again", f"{secret} again"),
    ]


def test_a_row_of_a_delay(app, worker, secret, sent):
    with sealing_as(ORIGIN):
        app.tasks["again"].s(secret, 60).apply_async()
    worker.run_due()
    rows = [one.row.text for one in app._runtime.schedule._waiting.values()]
    assert len(rows) == 1
    assert CANARY not in rows[0]
    assert HEADER in rows[0]


def test_links_and_all_steps_of_a_chain(app, goes, secret):
    keep = app.tasks["keep"]
    steps = chain(keep.s("1", secret), keep.s(secret), keep.s(f"{secret} last"))
    ran = goes(steps, link=keep.s(f"{secret} link"))
    assert {one[-1] for one in ran} == {secret, f"{secret} last", f"{secret} link"}
    assert len(ran) == 4


def test_the_body_of_a_chord(app, goes, secret):
    keep = app.tasks["keep"]
    ran = goes(chord([keep.s(secret), keep.s("2")], keep.s(secret)))
    assert ran[-1] == ("keep", ["kept", "kept"], secret)


def test_a_chord_that_follows(app, goes, secret):
    keep = app.tasks["keep"]
    following = chord([keep.si(secret), keep.si("2")], keep.s(secret))
    assert goes(keep.s("1"), link=following)[-1] == ("keep", ["kept", "kept"], secret)


def test_an_errback(app, goes, secret):
    ran = goes(app.tasks["fails"].s(secret), link_error=app.tasks["clean_up"].si(secret))
    assert ran == [("clean_up", secret)]


def test_a_task_that_takes_the_place_of_another_and_what_follows_that(app, goes, secret):
    keep = app.tasks["keep"]
    ran = goes(chain(app.tasks["moves_on"].s(secret), keep.s(secret)), link=keep.s(f"{secret} 2"))
    assert [one[-1] for one in ran] == ["moved", secret, f"{secret} 2"]


def test_what_a_handler_sends_by_itself_goes_by_the_settings_of_its_process(app, worker, sent):
    with sealing_as(ORIGIN):
        app.tasks["sends_its_own"].delay(CANARY)
    worker.run_until_settled()
    (own,) = [(body, said) for body, said in sent if said.get("task") == "keep"]
    assert HEADER not in own[1]
    assert json.loads(own[0])[0] == ["its own"]
    assert app.ran == [("keep", "its own")]


def test_a_copy_has_the_key_of_its_tenant_or_the_one_it_came_with(app, worker, sent):
    again = app.tasks["again"]
    with sealing_as(SealedOrigin("acme-1")):
        again.delay(CANARY)
    worker.run_until_settled()
    keys = {check_in(said).key for _, said in sent if said.get("task")}
    assert keys == {"acme-1"}


def test_a_forged_claim_turns_encryption_on_for_what_its_message_shows(app, worker, sent):
    """A plain message that claims to be encrypted is a letter. Its errback needs a key of ours."""
    with sealing_as(ORIGIN):
        app.tasks["keep"].delay(CANARY)
    (sealed,) = [said for _, said in sent if said.get("task")]
    clean_up = app.tasks["clean_up"]
    forged = {HEADER: sealed[HEADER].replace('"key": "k1"', '"key": "k9"')}
    app.tasks["keep"].apply_async(
        ("plain",), headers=OwnHeaders(forged), link_error=clean_up.si("mine")
    )
    worker.run_until_settled()
    assert app.ran == [("keep", CANARY), ("clean_up", "mine")]
    (errback,) = [(body, said) for body, said in sent if said.get("task") == "clean_up"]
    assert check_in(errback[1]).key == "k1", "the one in use: no one here has k9"
    assert "mine" not in f"{errback}"


@pytest.mark.parametrize("claim", [None, "", "{}", '{"size": 1}'])
def test_no_forged_claim_turns_encryption_off(app, worker, sent, claim):
    """Without its claim a sealed body is one unknown argument: nothing in it can be sent on."""
    with sealing_as(ORIGIN):
        app.tasks["again"].apply_async((CANARY,), link_error=app.tasks["clean_up"].si(CANARY))
    ((body, sealed),) = [(body, said) for body, said in sent if said.get("task")]
    headers = {**sealed, "id": "forged"}
    headers.pop(HEADER) if claim is None else headers.update({HEADER: claim})
    with app.connection_for_write() as connection:
        producer = Producer(connection)
        producer.publish(
            body, headers=headers, routing_key="celery", content_type="application/json",
            content_encoding="utf-8",
        )  # fmt: skip
    ends = worker.run_until_settled()
    assert "dead_lettered" in [ended.outcome for ended in ends]
    assert CANARY not in f"{sent}"


# -- what is sent of what is encrypted in the store alone ------------------------------------------


@pytest.mark.parametrize("worker", ["stored"], indirect=True)
def test_celerys_event_shows_no_argument_of_a_body_that_is_encrypted_in_the_store(
    app, worker, sent
):
    app.tasks["keep"].delay(CANARY * 200)
    app.tasks["keep"].apply_async(kwargs={"card": CANARY * 200})
    app.tasks["keep"].delay("small")
    events = [json.loads(body) for body, said in sent if not said.get("task")]
    assert [one["type"] for one in events] == ["task-sent"] * 3
    assert CANARY not in f"{sent}"
    assert events[0]["args"] == events[1]["kwargs"] == "[sealed]"
    assert "small" in events[2]["args"], "what is not encrypted is shown as ever"


def test_what_cannot_be_encrypted_is_not_sent(app, worker, sent):
    refused = pytest.raises(UnserializableEvent, match="set task_serializer to")
    keep = app.tasks["keep"]
    with sealing_as(ORIGIN), refused:
        keep.apply_async((CANARY,), serializer="yaml")
    app.conf.task_protocol = 1
    del app.amqp
    with sealing_as(ORIGIN), refused:
        keep.delay(CANARY)
    assert CANARY not in f"{sent}"


def test_a_follower_that_cannot_be_encrypted_makes_a_letter(app, worker, sent):
    with sealing_as(ORIGIN):
        keep = app.tasks["keep"]
        keep.apply_async(("1",), link=keep.s(CANARY).set(serializer="yaml"))
    (ended,) = worker.run_until_settled()
    assert ended.outcome == "dead_lettered"
    assert "cannot be sent: only tasks of Celery's protocol 2 in JSON" in str(ended.error)
    assert CANARY not in f"{sent}"


# -- what the analysis and the sagas send ----------------------------------------------------------


def undo(origin):
    headers = {names.EVENT_ID: "e1", names.TENANT_ID: "acme"}
    return Call("keep", "t1", (CANARY,), {}, headers, origin)


def test_a_compensation_is_encrypted_as_what_it_undoes(app, worker, sent):
    CeleryCompensations(app, None).send(undo(ORIGIN))
    assert CANARY not in f"{sent}"
    (said,) = [said for _, said in sent if said.get("task")]
    assert check_in(said).key == "acme-1"
    worker.run_until_settled()
    assert app.ran == [("keep", CANARY)]


def test_a_compensation_that_cannot_be_encrypted_is_not_sent(app, sent, tmp_path):
    with (
        staged(app, tmp_path, FakeClock(), chance=lambda: 0.0),
        pytest.raises(
            PayloadKeyMissing, match=r"key 'k1', which is not among payloads\.encryption"
        ),
    ):
        CeleryCompensations(app, None).send(undo(ORIGIN))
    with pytest.raises(PayloadKeyMissing), sealing_by(app, ORIGIN):
        raise AssertionError
    assert sent == []


def test_celerys_own_tasks_send_only_what_came_with_their_message(sealed_headers):
    """A chord that is unlocked by a task sends its body from that one's handler."""

    def in_its_handler():
        token = RUNNING.set(object())
        try:
            return origin_of_task()
        finally:
            RUNNING.reset(token)

    def origins(task, headers=sealed_headers):
        headers = {"task": task, **headers}
        return [trace_of(headers, asked) for asked in (origin_of_task, in_its_handler)]

    assert origins("celery.chord_unlock") == [ORIGIN, ORIGIN]
    assert origins("keep") == [ORIGIN, None]
    assert origins("keep", {}) == [None, None]
    assert origin_of_task() is None


def test_a_result_that_another_thread_stores_sends_the_body_of_its_chord(
    app, goes, secret, monkeypatch
):
    """As with `--coroutines`: the thread has the run's context."""
    store, stored = app.backend.mark_as_done, []

    def elsewhere(*args, **options):
        stored.append(args[0])
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(copy_context().run, partial(store, *args, **options)).result()

    monkeypatch.setattr(app.backend, "mark_as_done", elsewhere)
    keep = app.tasks["keep"]
    ran = goes(chord([keep.s(secret), keep.s("2")], keep.s(secret)))
    assert ran[-1] == ("keep", ["kept", "kept"], secret)
    assert len(stored) == 3


@pytest.fixture
def sealed_headers():
    check = {"size": 1, "digest": "0" * 64, "encoding": "xaes-256-gcm", "key": "k1"}
    return {HEADER: json.dumps(check)}


def test_the_notice_of_a_rejection_is_encrypted_as_the_command_was(app, worker, sent):
    command = Event(id="c1", type="Reserve", data={"card": CANARY}, domain="stock", root="r")
    source = Address("order", "o1")
    origin = Origin(saga="s", source=source, sequence=0)
    made = Rejection(
        id="r1", command=Command(event=command, origin=origin), origin=origin, reason="none left",
        rejected_at=datetime(2026, 1, 1, tzinfo=UTC),
    )  # fmt: skip
    published = []

    def publish(events, **_options):
        published.append((events, sealing_origin()))

    outbox = CeleryOutbox(app, publish, None)
    for sealed in (ORIGIN, None):
        sent.clear()
        outbox.tell(replace(made, sealed=sealed))
        outbox.publish([command], sealed)
        assert (CANARY in f"{sent}") is (sealed is None)
    outbox.publish([], ORIGIN)
    assert published == [([command], ORIGIN), ([command], None)]


# -- how a worker runs it --------------------------------------------------------------------------


@pytest.fixture
def traces(monkeypatch):
    """Which tracer ran each task, in order."""
    seen = []
    ours, run = RoadTracer._trace, RoadTracer.__init__

    def by_ours(self, uuid, args, kwargs, shown):
        seen.append("ours")
        return ours(self, uuid, args, kwargs, shown)

    def init(self, task, celerys):
        def by_celerys(*given):
            seen.append("Celery's")
            return celerys(*given)

        run(self, task, by_celerys)

    monkeypatch.setattr(RoadTracer, "_trace", by_ours)
    monkeypatch.setattr(RoadTracer, "__init__", init)
    return seen


def test_one_without_followers_is_run_and_acknowledged_like_any_other(
    app, traces, worker, secret, monkeypatch
):
    follows = []
    leave = Settler.leave

    def noted(self, delivery, outcome):
        follows.append(delivery.ack_follows)
        return leave(self, delivery, outcome)

    monkeypatch.setattr(Settler, "leave", noted)
    keep = app.tasks["keep"]
    keep.ignore_result = True
    with sealing_as(ORIGIN):
        keep.delay(secret)
        worker.run_until_settled()
        assert (traces, follows) == (["ours"], [True])
        keep.apply_async((secret,), link=keep.s(secret))
        worker.run_until_settled()
    assert traces == ["ours", "Celery's", "ours"]
    assert follows == [True, False, True], "a chord might be with the body"
    assert len(app.ran) == 3


def test_followers_that_a_forged_header_denies_make_a_letter(app, worker, sent, monkeypatch):
    """By that header was chosen how it runs: a chord in its body would not be counted."""
    write = body_offloader.write_check
    monkeypatch.setattr(
        body_offloader, "write_check", lambda check: write(replace(check, follows=False))
    )
    keep = app.tasks["keep"]
    with sealing_as(ORIGIN):
        keep.apply_async((CANARY,), link=keep.s("link"), chain=[keep.s("next")])
    monkeypatch.undo()
    (ended,) = worker.run_until_settled()
    assert ended.outcome == "dead_lettered"
    assert str(ended.error).startswith(
        "its body has callbacks and chain, and its header angzarr-payload"
    )
    assert app.ran == []
