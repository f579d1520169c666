"""Keys of bodies are checked at start, in one sentence that shows none of them."""

from __future__ import annotations

import base64
import json
import sys

import pytest

from angzarr.errors import ConfigurationError, MissingExtra
from angzarr.settings.body_encryption import BodyEncryption
from angzarr.settings.settings import load
from angzarr.wiring import payloads as payload_wiring

KEY = base64.b64encode(b"k" * 32).decode()


@pytest.mark.parametrize(
    ("payloads", "said"),
    [
        ({"encryption_keys": {"k": "c2hvcnQ="}}, "encryption_keys.k must be 32 bytes in base64"),
        ({"encryption_keys": {"k": KEY[:-4]}}, "make one with `openssl rand -base64 32`"),
        ({"encryption_keys": {"a b": KEY}}, "a key id has letters, digits"),
        (
            {"encryption_keys": {"a": KEY}, "encryption_key": KEY},
            "encryption_key must be the id of one of encryption_keys",
        ),
        ({"encryption_keys": {"a": KEY, "b": KEY}}, "encryption_key must say which of the"),
        (
            {"encryption_keys": {"a": KEY}, "tenant_keys": {"acme": KEY}},
            "tenant_keys.acme must be the id of one of encryption_keys: add that key",
        ),
        ({"encrypt": "all"}, "encrypt 'all' needs encryption_keys"),
        ({"encrypt": "stored"}, "encrypt 'stored' needs encryption_keys"),
        ({"encrypt": "some"}, "payloads.encrypt: Input should be 'none', 'stored' or 'all'"),
    ],
)
def test_what_cannot_work_is_refused_without_showing_a_key(payloads, said):
    with pytest.raises(ConfigurationError) as refused:
        load({"payloads": payloads})
    assert said in str(refused.value)
    assert KEY not in str(refused.value)


def test_no_key_is_ever_shown():
    given = load({"payloads": {"encryption_keys": {"k": KEY}, "encrypt": "all"}})
    shown = repr((given, payload_wiring.open_sealer(given))) + given.model_dump_json()
    for secret in (KEY, "k" * 32):
        assert secret not in shown


def test_keys_may_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("ANGZARR_PAYLOADS__ENCRYPTION_KEYS", json.dumps({"k": KEY}))
    monkeypatch.setenv("ANGZARR_PAYLOADS__TENANT_KEYS", json.dumps({"acme": "k"}))
    sealer = payload_wiring.open_sealer(load({}))
    assert (sealer.keys.keys, sealer.keys.current) == ({"k": b"k" * 32}, "k")
    assert sealer.keys.of_tenant("acme") == "k"


def test_what_is_stored_is_encrypted_by_default_where_there_is_a_key():
    def rule(**payloads):
        return load({"payloads": payloads}).payloads.body_encryption()

    assert rule() is BodyEncryption.NONE
    assert rule(encryption_keys={"k": KEY}) is BodyEncryption.STORED
    assert rule(encryption_keys={"k": KEY}, encrypt="none") is BodyEncryption.NONE
    assert payload_wiring.open_sealer(load({})) is None


def test_letters_follow_the_store_of_messages_and_not_its_keys():
    given = load({"payloads": {"url": "file:///a", "encryption_keys": {"k": KEY}}})
    assert given.dlq.payloads.url == "file:///a"
    assert given.dlq.encryption_keys == {}


def test_the_extra_that_is_missing_is_named_at_start(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    monkeypatch.delitem(sys.modules, "angzarr.adapters.cryptography.xaes", raising=False)
    with pytest.raises(MissingExtra, match=r"angzarr-workers\[encryption\]"):
        payload_wiring.open_sealer(load({"payloads": {"encryption_keys": {"k": KEY}}}))
