"""What the settings of compensation take, from where, and what they refuse and never show."""

from __future__ import annotations

import base64

import pytest

from angzarr.errors import ConfigurationError
from angzarr.settings.sagas import VARIABLES
from angzarr.settings.settings import load

KEY = b"k" * 32
SECRET = "whsec_" + base64.b64encode(KEY).decode()
URL = "https://hooks.test/T0/s3cret-path"
QUEUE = "amqp://ada:s3cret-path@letters.test:5672/sagas"

#: What each field may be given as text, and what it then is.
GIVEN = {
    "fallback_domain": ("sagas", "sagas"),
    "fallback_emit_system_revocation": ("false", False),
    "fallback_send_to_dlq": ("0", False),
    "fallback_escalate": ("no", False),
    "dead_letter_queue_url": (QUEUE, QUEUE),
    "escalation_webhook_url": (URL, URL),
}


def saga(**given):
    return load({"saga_compensation": given}).saga_compensation


def value_of(settings, field):
    value = getattr(settings, field)
    return getattr(value, "get_secret_value", lambda: value)()


def usual(field):
    return f"ANGZARR_SAGA_COMPENSATION__{field.upper()}"


def test_by_default_a_failure_is_told_in_every_way_that_needs_no_address():
    given = saga()
    assert given.fallback_domain == "angzarr.saga-failures"
    assert given.fallback_emit_system_revocation
    assert given.fallback_send_to_dlq
    assert given.fallback_escalate
    assert given.dead_letter_queue_url is None
    assert given.escalation_webhook_url is None
    assert given.max_depth == 50


def test_all_of_it_comes_from_yaml(tmp_path):
    path = tmp_path / "angzarr.yaml"
    path.write_text(
        "saga_compensation:\n"
        "  fallback_domain: sagas\n"
        "  fallback_emit_system_revocation: false\n"
        "  fallback_send_to_dlq: false\n"
        "  fallback_escalate: false\n"
        f"  dead_letter_queue_url: {QUEUE}\n"
        f"  escalation_webhook_url: {URL}\n"
        f"  escalation_webhook_secrets: [{SECRET}]\n"
        "  max_depth: 7\n"
    )
    given = load({}, path).saga_compensation
    assert {field: value_of(given, field) for field in GIVEN} == {
        field: value for field, (_, value) in GIVEN.items()
    }
    assert given.keys() == (KEY,)
    assert given.max_depth == 7


# -- the environment ---------------------------------------------------------------------------


def test_six_fields_have_a_shorter_variable():
    assert VARIABLES == {
        "ANGZARR_SAGA_FALLBACK_DOMAIN": "fallback_domain",
        "ANGZARR_SAGA_FALLBACK_EMIT_SYSTEM_REVOCATION": "fallback_emit_system_revocation",
        "ANGZARR_SAGA_FALLBACK_SEND_TO_DLQ": "fallback_send_to_dlq",
        "ANGZARR_SAGA_FALLBACK_ESCALATE": "fallback_escalate",
        "ANGZARR_SAGA_DLQ_URL": "dead_letter_queue_url",
        "ANGZARR_SAGA_ESCALATION_WEBHOOK": "escalation_webhook_url",
    }


@pytest.mark.parametrize(("variable", "field"), VARIABLES.items())
def test_the_environment_wins_over_yaml_by_either_variable(monkeypatch, tmp_path, variable, field):
    path = tmp_path / "angzarr.yaml"
    others = {"dead_letter_queue_url": "sqs://eu-west-1", "escalation_webhook_url": "http://o.test"}
    path.write_text(f"saga_compensation: {{max_depth: 7, {field}: {others.get(field, 'true')}}}\n")
    text, value = GIVEN[field]
    for name in (variable, usual(field)):
        monkeypatch.setenv(name, text)
        given = load({}, path).saga_compensation
        assert value_of(given, field) == value
        assert given.max_depth == 7
        monkeypatch.delenv(name)


def test_either_variable_of_several_fields_may_be_used(monkeypatch):
    monkeypatch.setenv("ANGZARR_SAGA_FALLBACK_DOMAIN", "sagas")
    monkeypatch.setenv("ANGZARR_SAGA_COMPENSATION__FALLBACK_ESCALATE", "false")
    given = load({}).saga_compensation
    assert (given.fallback_domain, given.fallback_escalate) == ("sagas", False)


def test_the_same_said_twice_is_no_contradiction(monkeypatch):
    monkeypatch.setenv("ANGZARR_SAGA_FALLBACK_ESCALATE", "0")
    monkeypatch.setenv("ANGZARR_SAGA_COMPENSATION__FALLBACK_ESCALATE", "false")
    assert not load({}).saga_compensation.fallback_escalate


@pytest.mark.parametrize(
    ("variable", "other"),
    [("ANGZARR_SAGA_FALLBACK_DOMAIN", "other"), ("ANGZARR_SAGA_FALLBACK_ESCALATE", "true"),
     ("ANGZARR_SAGA_ESCALATION_WEBHOOK", URL + "2"), ("ANGZARR_SAGA_DLQ_URL", QUEUE + "2"),
     ("ANGZARR_SAGA_FALLBACK_SEND_TO_DLQ", "s3cret-path")],
)  # fmt: skip
def test_two_values_of_one_field_are_refused_by_name_and_not_repeated(monkeypatch, variable, other):
    field = VARIABLES[variable]
    monkeypatch.setenv(variable, GIVEN[field][0])
    monkeypatch.setenv(usual(field), other)
    with pytest.raises(ConfigurationError, match=f"by {variable} and by {usual(field)}") as caught:
        load({})
    assert "s3cret-path" not in str(caught.value)


def test_the_section_as_one_object_may_contradict_too(monkeypatch):
    monkeypatch.setenv("ANGZARR_SAGA_FALLBACK_DOMAIN", "sagas")
    monkeypatch.setenv("ANGZARR_SAGA_COMPENSATION", '{"fallback_domain": "other"}')
    with pytest.raises(ConfigurationError, match="and by ANGZARR_SAGA_COMPENSATION: keep one"):
        load({})


@pytest.mark.parametrize("given", ["3", "[]", '"text"'])
def test_a_section_that_is_no_object_is_refused(monkeypatch, given):
    monkeypatch.setenv("ANGZARR_SAGA_COMPENSATION", given)
    monkeypatch.setenv("ANGZARR_SAGA_FALLBACK_DOMAIN", "sagas")
    with pytest.raises(ConfigurationError, match="saga_compensation"):
        load({})


@pytest.mark.parametrize(
    "variable",
    ["ANGZARR_SAGA_FALLBACK_DOMIAN", "ANGZARR_SAGA", "ANGZARR_SAGA_DLQ_URL__X",
     "ANGZARR_SAGA_ESCALATION_WEBHOOK_URL"],
)  # fmt: skip
def test_a_misspelt_variable_is_refused_and_the_right_ones_are_named(monkeypatch, variable):
    monkeypatch.setenv(variable, "s3cret-path")
    with pytest.raises(ConfigurationError, match="ANGZARR_SAGA_FALLBACK_DOMAIN") as caught:
        load({})
    assert f'unknown variable "{variable}"' in str(caught.value)
    assert "s3cret-path" not in str(caught.value)


# -- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [({"fallback_domain": "Big"}, "fallback_domain: domain 'Big' cannot be used"),
     ({"max_depth": 0}, "max_depth: .*greater than or equal to 1"),
     ({"fallback_escalat": True}, 'did you mean "saga_compensation.fallback_escalate"'),
     ({"escalation_webhook_secrets": [SECRET]}, "and escalation_webhook_url names none"),
     ({"escalation_webhook_ca_certs": "/ca.pem"}, "and escalation_webhook_url names none"),
     ({"escalation_webhook_url": URL, "escalation_webhook_secrets": ["x"]}, "openssl rand")],
)  # fmt: skip
def test_values_that_cannot_work_are_refused(given, said):
    with pytest.raises(ConfigurationError, match=said):
        saga(**given)


@pytest.mark.parametrize(
    "url",
    ["ftp://h/s3cret-path", "s3cret-path", "https://ada:s3cret-path@h/", "https://h/#s3cret-path"],
)
def test_an_address_that_is_none_is_refused_and_not_repeated(url):
    with pytest.raises(ConfigurationError, match="escalation_webhook_url: a webhook's url") as told:
        saga(escalation_webhook_url=url)
    assert "s3cret-path" not in str(told.value)


@pytest.mark.parametrize(
    "url", ["kafka://a:9092,b:9092", QUEUE, "sqs://eu-west-1", "sns-sqs://eu-west-1", "pubsub://p"]
)
def test_a_dead_letter_queue_is_named_as_on_the_command_line(url):
    assert saga(dead_letter_queue_url=url).dead_letter_queue_url.get_secret_value() == url


@pytest.mark.parametrize(
    "url",
    ["spool:///var/s3cret-path", "s3cret-path", "http://s3cret-path/", "kafka://", "pubsub://",
     "sqs://eu-west-1?wrong=s3cret-path"],
)  # fmt: skip
def test_what_is_no_queue_is_refused_and_not_repeated(url):
    with pytest.raises(ConfigurationError, match="dead_letter_queue_url: ") as told:
        saga(dead_letter_queue_url=url)
    assert "s3cret-path" not in str(told.value)


def test_settings_never_show_an_address_or_a_secret():
    given = saga(
        dead_letter_queue_url=QUEUE, escalation_webhook_url=URL, escalation_webhook_secrets=[SECRET]
    )
    for shown in (repr(given), str(given), repr(given.model_dump())):
        assert "s3cret-path" not in shown
        assert SECRET not in shown
