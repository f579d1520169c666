"""Redaction, keys and routes are checked at start, in one sentence that shows no key."""

from __future__ import annotations

import base64
import json
import sys
from contextlib import closing

import pytest

from angzarr.adapters.memory.dead_letters import MemoryDeadLetterQueue
from angzarr.app.angzarr import Angzarr
from angzarr.dead_letters.protection import Encrypt, ProtectedQueue
from angzarr.errors import ConfigurationError, MissingExtra
from angzarr.settings.settings import load
from angzarr.wiring import dead_letters as letter_wiring
from angzarr.wiring import protection as protection_wiring

KEY = base64.b64encode(b"k" * 32).decode()
SECRET = "a secret of some length"


def settings(**dlq):
    return load({"dlq": {"backend": "channel", **dlq}})


def queue(**dlq):
    return letter_wiring.open_dead_letters(settings(**dlq), "memory://")


@pytest.mark.parametrize(
    ("dlq", "said"),
    [
        ({"redact": ["event..a"]}, "dlq.redact: 'event..a' has an empty step"),
        (
            {"redact": ["password"]},
            "'password' begins with 'password', where no letter has anything",
        ),
        ({"redact": ["event.pass*"]}, "steps of their own"),
        ({"redact_text": ["("]}, "dlq.redact_text: '(' is not a regular expression"),
        ({"redact_text": ["(a+)+"]}, "repeats a repetition"),
        (
            {"encryption_keys": {"k": "c2hvcnQ="}},
            "dlq: encryption_keys.k must be 32 bytes in base64",
        ),
        ({"encryption_keys": {"k": KEY[:-4]}}, "encryption_keys.k must be 32 bytes in base64"),
        ({"encryption_keys": {"k": "not base64!"}}, "encryption_keys.k must be 32 bytes in base64"),
        ({"encryption_keys": {"a b": KEY}}, "a key id has letters, digits"),
        (
            {"encryption_keys": {"a": KEY}, "encryption_key": "b"},
            "encryption_key must be the id of one",
        ),
        ({"encryption_keys": {"a": KEY, "b": KEY}}, "encryption_key must say which of the"),
        ({"encrypt": "all"}, "encrypt 'all' needs encryption_keys"),
        ({"encrypt": "some"}, "dlq.encrypt: Input should be 'none', 'redacted' or 'all'"),
        ({"signing_keys": {"s": "x1y2z3"}}, "signing_keys.s is shorter than 16 characters"),
        ({"signing_keys": {"a:b": SECRET}}, "a key id has letters, digits"),
        ({"signing_keys": {"a": SECRET, "b": SECRET}}, "signing_key must say which of the"),
        ({"signing_key": "s"}, "signing_key must be the id of one"),
        ({"accept_unsigned": True}, "accept_unsigned says nothing without signing_keys"),
        ({"foreign_routes": {"bank": {"*": {"task": "t"}}}}, "dlq.foreign_routes.bank.*.queue"),
    ],
)
def test_what_cannot_work_is_refused_without_showing_a_key(dlq, said):
    with pytest.raises(ConfigurationError) as refused:
        settings(**dlq)
    assert said in str(refused.value)
    for given in [*dlq.get("encryption_keys", {}).values(), *dlq.get("signing_keys", {}).values()]:
        assert given not in str(refused.value)


def test_no_key_is_ever_shown():
    given = settings(encryption_keys={"k": KEY}, signing_keys={"s": SECRET})
    opened = letter_wiring.open_dead_letters(given, "memory://")
    shown = repr((given, opened, vars(opened), protection_wiring.open_clearance(given.dlq)))
    for secret in (KEY, SECRET, "k" * 32):
        assert secret not in shown
        assert secret not in given.model_dump_json()


def test_keys_may_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("ANGZARR_DLQ__ENCRYPTION_KEYS", json.dumps({"k": KEY}))
    monkeypatch.setenv("ANGZARR_DLQ__SIGNING_KEYS", json.dumps({"s": SECRET}))
    given = settings()
    assert given.dlq.opening_keys() == {"k": b"k" * 32}
    assert given.dlq.verifying_keys() == {"s": SECRET.encode()}


def test_an_object_of_keys_that_is_no_json_is_refused_in_a_sentence_without_it(monkeypatch):
    monkeypatch.setenv("ANGZARR_DLQ__ENCRYPTION_KEYS", '{"k": "' + KEY)
    with pytest.raises(ConfigurationError, match=r"DLQ__ENCRYPTION_KEYS .* not JSON") as refused:
        settings()
    assert KEY not in str(refused.value)
    assert refused.value.__cause__ is None


def test_without_any_of_the_settings_the_layer_is_not_there():
    assert isinstance(queue(), MemoryDeadLetterQueue)
    assert isinstance(queue(foreign_routes={}), MemoryDeadLetterQueue)


@pytest.mark.parametrize(
    "dlq",
    [
        {"redact": ["**.password"]},
        {"redact_text": ["x"]},
        {"encryption_keys": {"k": KEY}},
        {"signing_keys": {"s": SECRET}},
    ],
)
def test_each_of_them_puts_the_layer_there(dlq):
    assert isinstance(queue(**dlq), ProtectedQueue)


def test_redacted_letters_are_sealed_by_default_where_there_is_a_key():
    assert settings().dlq.encrypted() is Encrypt.NONE
    assert settings(encryption_keys={"k": KEY}).dlq.encrypted() is Encrypt.REDACTED
    assert settings(encryption_keys={"k": KEY}, encrypt="none").dlq.encrypted() is Encrypt.NONE


def test_the_extra_that_is_missing_is_named_at_start(monkeypatch):
    for package in ("joserfc", "joserfc.errors"):
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "angzarr.adapters.jose.jwe", raising=False)
    with pytest.raises(MissingExtra, match=r"angzarr-workers\[encryption\]"):
        queue(encryption_keys={"k": KEY})
    assert isinstance(queue(signing_keys={"s": SECRET}), ProtectedQueue)


@pytest.mark.parametrize(
    ("route", "said"),
    [
        ({"task": "bank.give", "queue": "bank"}, "names the task 'bank.give'"),
        ({"task": "bank.take", "queue": "bonk"}, "names the queue 'bonk'"),
    ],
)
def test_a_foreign_route_that_leads_nowhere_is_refused(route, said):
    with app_with({"bank": {"*": route}}) as app, pytest.raises(ConfigurationError, match=said):
        app.ops.replay_targets()


def test_the_domains_of_foreign_routes_are_read():
    with app_with({"bank": {"*": {"task": "bank.take", "queue": "bank"}}}) as app:
        assert {"bank", "unknown"} <= set(app.ops.dead_letter_domains())
        assert app.ops.replay_targets().clear.routes["bank"]["*"].task == "bank.take"


def app_with(routes):
    dlq = {"backend": "channel", "foreign_routes": routes}
    app = Angzarr("bank", broker="memory://", dlq=dlq)
    app.handler("taken", name="bank.take", queue="bank")(take)
    return closing(app)


def take(event):
    """Handle it."""
