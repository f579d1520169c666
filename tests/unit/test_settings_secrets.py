"""What may hold a secret shows in no `repr` of the settings and in no error about them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pydantic import BaseModel, SecretStr, ValidationError

from angzarr.errors import ConfigurationError
from angzarr.settings.settings import Settings, load

SECRET = "SECRETpw"
VALUES = [
    *(f"{scheme}://u:{SECRET}@h/" for scheme in ("redis", "https", "amqp")),
    f"u:{SECRET}@h",
    f"redis://h/?password={SECRET}",
]
#: Text that is no secret whatever it says, so that errors may repeat it: names, paths, patterns.
NAMES = {
    "prefix", "aws_region", "aws_profile", "redact", "redact_text", "path", "ca_certs", "certfile",
    "keyfile", "server_hostname", "kafka_group", "pubsub_project", "domains", "queue_domains",
    "region", "default", "policies", "fallback_domain", "escalation_webhook_ca_certs",
}  # fmt: skip


def types_in(kind: Any) -> Iterator[Any]:
    yield kind
    for part in get_args(kind):
        yield from types_in(part)


def is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def is_text(kinds: list[Any]) -> bool:
    return bool({str, SecretStr} & set(kinds)) and not any(map(is_section, kinds))


def secret_fields(model: Any, *above: str) -> Iterator[tuple[str, ...]]:
    """Yield the way to each setting that takes free text and is no name."""
    for name, field in model.model_fields.items():
        kinds = list(types_in(field.annotation))
        if is_section(field.annotation):
            yield from secret_fields(field.annotation, *above, name)
        elif name not in NAMES and is_text(kinds):
            yield (*above, name)


FIELDS = sorted(secret_fields(Settings))


def given(way: tuple[str, ...], value: Any) -> dict[str, Any]:
    for name in reversed(way):
        value = {name: value}
    return value


def filled(way: tuple[str, ...], value: str) -> Iterator[dict[str, Any]]:
    """Yield settings with *value*, right and wrong ones: wrong ones make an error."""
    options = {"aws_options": "verify", "kafka_options": "sasl.password"}
    yield given(way, {options.get(way[-1], "k1"): value})
    yield given(way, value)
    yield given(way, [value])


def said_of(code: dict[str, Any]) -> str:
    try:
        settings = load(code)
    except ConfigurationError as error:
        return str(error)
    return f"{settings!r} {settings}"


def said_directly_of(code: dict[str, Any]) -> str:
    try:
        return repr(Settings(**code))
    except ValidationError as error:
        return f"{error} {error!r}"


def test_the_settings_with_secrets_are_found():
    names = {".".join(way) for way in FIELDS}
    assert {
        "store",
        "ledger",
        "facts.url",
        "flow.store",
        "dlq.amqp_url",
        "dlq.payloads.url",
    } < names
    assert {"dlq.aws_options", "dlq.kafka_options", "dlq.signing_keys"} < names


@pytest.mark.parametrize("way", FIELDS, ids=".".join)
@pytest.mark.parametrize("say", [said_of, said_directly_of])
def test_no_secret_is_shown(way, say):
    shown = [say(code) for value in VALUES for code in filled(way, value)]
    assert not [text for text in shown if SECRET in text]


@pytest.mark.parametrize("url", ["s3://bucket/x", "file:///x"])
def test_no_secret_is_shown_of_a_payload_store_that_is_elsewhere(url):
    payloads = {"url": url, "endpoint_url": VALUES[1]}
    assert SECRET not in said_of({"dlq": {"payloads": payloads}})


def test_no_secret_of_the_environment_is_shown(monkeypatch):
    for way in FIELDS:
        variable = f"ANGZARR_{'__'.join(way).upper()}"
        monkeypatch.setenv(variable, VALUES[0])
        assert SECRET not in said_of({})
        monkeypatch.delenv(variable)


def test_settings_without_secrets_are_shown():
    shown = repr(load({"prefix": "shop", "dlq": {"kafka_partitions": 7}}))
    assert "prefix='shop'" in shown
    assert "kafka_partitions=7" in shown
