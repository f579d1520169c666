"""Whatever a header or what a body embeds says, its message is handled or a letter, and it goes on.

Celery reads these fields in the parent and in the child, amid a run and after it.
"""

from __future__ import annotations

import re
import uuid
from contextlib import ExitStack

import pytest
from celery.app.task import Context
from celery.exceptions import InvalidTaskError
from kombu.utils.json import dumps

from angzarr import Angzarr
from angzarr.adapters.celery.message_check import _FIELDS, check_headers, checked_body
from angzarr.dead_letters import codec
from angzarr.dead_letters.codec import Form
from angzarr.testing.clock import FakeClock
from angzarr.testing.staging import staged
from angzarr.testing.worker import open_in_process


@pytest.mark.parametrize("name", ["angzarr", "angzarr_told"])
@pytest.mark.parametrize("value", [None, "x", [1, 2, 3, 4, 5, 6, 7, 8, 9]])
def test_what_a_body_embeds_cannot_pass_for_our_own_words(name, value):
    with pytest.raises(InvalidTaskError, match="this worker's own"):
        checked_body([[], {}, {name: value}])


def test_what_else_a_body_embeds_is_let_through():
    embed = {"callbacks": None, "chain": None, "mine": 1}
    assert checked_body([[1], {"a": 2}, embed]) == ([1], {"a": 2}, embed)


@pytest.mark.parametrize("shadow", [["x"], {"x": 1}, 7])
def test_a_shadow_that_is_no_text_is_malformed(shadow):
    with pytest.raises(InvalidTaskError, match="not text"):
        check_headers({"id": "a", "shadow": shadow})


@pytest.mark.parametrize("shadow", [None, "", "shown"])
def test_a_shadow_that_celery_takes_is_let_through(shadow):
    check_headers({"id": "a", "shadow": shadow})


#: Every field that Celery knows of a request, in the version that is installed, and a few besides.
NAMES = sorted(
    {*(name for name in vars(Context) if not name.startswith("__")), *_FIELDS, "task", "lang",
     "argsrepr", "kwargsrepr", "compression", "hostname", "id", "group", "stamps"}
)  # fmt: skip
ODD = {
    "null": None, "bool": True, "int": 1, "negative": -1, "huge": 10**4000, "float": 1.5,
    "nan": float("nan"), "infinite": float("inf"), "no list": [], "list": [1],
    "names": ["x"], "no mapping": {}, "mapping": {"a": 1},
    "bytes": b"\xff", "no text": "", "text": "x", "long text": "x" * 10_000,
    "half a character": "\ud800",
}  # fmt: skip
LETTER = re.compile(r"\Aundeliverable: |event_sent_to_dlq")
GOOD = {"lang": "py", "retries": 0, "eta": None, "expires": None, "origin": "gen1@host"}


@pytest.fixture
def app():
    app = Angzarr("odd", broker="memory://", backend="cache+memory://")
    app.conf.result_extended = True
    app.conf.task_track_started = True
    return app


@pytest.fixture
def letters(app, monkeypatch):
    found = []
    salvage = app._runtime.settlement._salvage.dead_letters
    monkeypatch.setattr(salvage, "put", lambda put: found.extend(put) or [None] * len(put))
    return found


@pytest.fixture
def send(app):
    """Send a message of the task *name* as any client can."""

    def send(name, said, embed):
        task_id = uuid.uuid4().hex
        headers = {**GOOD, "task": name, "id": task_id, "root_id": task_id, **said}
        with app.producer_pool.acquire(block=True) as producer:
            producer.publish(
                dumps([[task_id], {}, embed]), routing_key=app.conf.task_default_queue,
                headers=headers, content_type="application/json", content_encoding="utf-8",
            )  # fmt: skip
        return task_id

    return send


def errors(caplog):
    """What was said besides that there is a letter."""
    for record in caplog.records:
        said = record.getMessage()
        if record.levelname in {"ERROR", "CRITICAL"} and not LETTER.search(said):
            yield said


@pytest.mark.parametrize("place", ["headers", "embed"])
def test_a_field_of_any_type_ends_as_handled_or_as_a_letter(
    app, tmp_path, send, request, place, caplog
):
    ran = []

    @app.task(bind=True, name="odd.task", max_retries=5)
    def task(self, told):
        repr(self.request)
        if told not in ran:
            ran.append(told)
            other.delay(told)
            raise self.retry(countdown=0)
        return told

    @app.task(name="x")  # what odd lists of tasks name
    def other(told):
        ran.append(told)
        return told

    with ExitStack() as doors:
        clock = FakeClock()
        doors.enter_context(staged(app, tmp_path, clock, chance=lambda: 0.0))
        worker = doors.enter_context(open_in_process(app, clock))
        letters = request.getfixturevalue("letters")
        wrong = []
        for name in NAMES:
            letters.clear()
            caplog.clear()
            odd = {}
            for kind, value in ODD.items():
                if (name, kind) == ("task", "half a character"):
                    continue  # its log lines cannot be sent to who counts the tests
                told = {name: value}
                odd[send("odd.task", *((told, {}) if place == "headers" else ({}, told)))] = kind
            good = send("odd.task", {}, {})
            settled = worker.run_until_settled()
            if good not in ran:
                wrong.append(f"{name}: the next did not run")
            died = [one for one in settled if one.outcome == "dead_lettered"]
            if died and name != "task":  # a task that nobody knows is a letter of that
                wrong.append(f"{name}: failed amid its run: {died!r:.300}")
            handled = {odd[one] for one in ran if one in odd}
            if len(letters) + len(died) + len(handled) != len(odd):
                wrong.append(f"{name}: {handled} {letters!r:.300} {died!r:.300}")
            wrong += [f"{name}: {said:.300}" for said in errors(caplog)]
            for letter in letters:
                codec.encode(letter, Form.JSON)
    assert not wrong, ascii("\n".join(wrong)).replace("\\n", "\n")
