"""Settings that are right: what each source may say, and how."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from angzarr import Angzarr
from angzarr.errors import ConfigurationError
from angzarr.settings.settings import load


@pytest.mark.parametrize("given", ["90", "90.0", "PT90S", "PT1M30S"])
def test_a_span_in_the_environment_is_seconds_or_iso_8601(monkeypatch, given):
    monkeypatch.setenv("ANGZARR_ANALYSIS__FIRST_DELAY", given)
    assert load({}).analysis.first_delay == timedelta(seconds=90)


def test_routes_and_policies_come_from_yaml(tmp_path):
    path = tmp_path / "angzarr.yaml"
    path.write_text(
        "routes: {OrderPlaced: [{handler: crm.sync, queue: crm}]}\n"
        "retry: {default: slow, policies: {slow: {base: 3, max_delay: 9, max_attempts: 2}}}\n"
    )
    settings = load({}, path)
    assert settings.routes["OrderPlaced"][0].queue == "crm"
    assert settings.retry.policies["slow"]["base"] == 3


def test_a_route_names_an_event_type_or_all_events_of_a_domain():
    keys = ["OrderPlaced", "order/*", "shop.v1.OrderPlaced", "a/b"]
    assert list(load({"routes": {key: [{"handler": "h"}] for key in keys}}).routes) == keys


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("", "'' names neither an event type nor all events of a domain: write"),
        ("Order*", "neither an event type"),
        ("*", "neither an event type"),
        ("order/Placed*", "neither an event type"),
        ("/*", "domain '' cannot be used"),
        ("Order/*", "domain 'Order' cannot be used"),
        ("*/*", "cannot be used"),
    ],
)
def test_a_route_that_would_reach_nobody_is_refused(key, why):
    with pytest.raises(ConfigurationError, match=f"routes: .*{re.escape(why)}"):
        load({"routes": {key: [{"handler": "h"}]}})


def test_settings_cannot_be_changed_afterwards():
    with pytest.raises(ValueError, match="frozen"):
        load({}).prefix = "other"


@pytest.mark.parametrize(
    "name",
    [
        "ANGZARR_SERVICE_HOST",
        "ANGZARR_SERVICE_PORT_HTTP",
        "ANGZARR_PORT",
        "ANGZARR_REDIS_SERVICE_HOST",
        "ANGZARR_REDIS_PORT_6379_TCP_ADDR",
    ],
)
def test_what_kubernetes_tells_of_a_service_called_angzarr_is_no_misspelt_setting(
    monkeypatch, name
):
    monkeypatch.setenv(name, "10.0.0.1")
    load({})


def test_rules_of_policies_come_from_yaml_and_environment(tmp_path, monkeypatch):
    path = tmp_path / "angzarr.yaml"
    path.write_text(
        "retry: {rules: [{policy: webhook, handler: 'crm.*', time_left: PT30S},"
        " {policy: no_retry, category: external, priority: realtime}]}\n"
    )
    said = [rule.source for rule in load({}, path).retry.policy_rules().ranked()]
    assert said[0] == "retry.rules[0]"
    monkeypatch.setenv("ANGZARR_RETRY__RULES", '[{"policy": "webhook", "tenant": "acme"}]')
    (rule, *_) = load({}, path).retry.policy_rules().ranked()
    assert (rule.tenant, rule.policy.name) == ("acme", "webhook")


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"policy": "webhok", "tenant": "a"}, r"retry.rules\[0\]: there is no backoff policy 'web"),
        (
            {"policy": "webhook", "tennant": "a"},
            'tennant"; did you mean "retry.rules.0.tenant"',
        ),
        ({"policy": "webhook", "category": "transcient"}, r"retry.rules.0.category: .*'transient'"),
        ({"policy": "webhook", "priority": "urgent"}, r"retry.rules.0.priority: .*'realtime'"),
        ({"policy": "webhook", "event_type": "[ab]*"}, r"retry.rules\[0\]: event_type cannot be"),
        ({"policy": "webhook", "time_left": 0}, r"retry.rules.0.time_left: .*greater than"),
        ({"policy": "webhook"}, r"retry.rules\[0\] has no condition"),
        ({"tenant": "a"}, r"retry.rules.0.policy: is missing: set it"),
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused_when_the_app_is_made(rule, said):
    with pytest.raises(ConfigurationError, match=said):
        Angzarr("shop", broker="memory://", retry={"rules": [rule]})


def test_an_operation_may_name_a_policy_or_be_known_by_a_rule():
    retry = {"rules": [{"policy": "webhook", "operation": "mail"}]}
    app = Angzarr("shop", broker="memory://", retry=retry)
    app.task(name="a", operation="mail")(lambda: None)
    app.handler("Placed", name="b", operation="crm_sync")(lambda event: None)
    with pytest.raises(ConfigurationError, match="no backoff policy 'post'"):
        app.handler("Placed", name="c", operation="post")(lambda event: None)
    with pytest.raises(ConfigurationError, match="no backoff policy 'fast'"):
        app.handler("Placed", name="d", policy="fast")(lambda event: None)
    app.close()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("{initial_delay: 1}", "retry.policies: backoff policy 'quick': unknown field"),
        ("{base: soon}", "retry.policies: backoff policy 'quick': base cannot be"),
    ],
)
def test_a_wrong_policy_names_setting_and_file(tmp_path, given, said):
    path = tmp_path / "angzarr.yaml"
    path.write_text(f"retry: {{policies: {{quick: {given}}}}}")
    with pytest.raises(ConfigurationError) as told:
        load({}, path)
    assert said in str(told.value)
    assert f"(from {path} or the environment)" in str(told.value)


def test_a_variable_that_is_no_json_is_named_without_its_value(monkeypatch):
    monkeypatch.setenv("ANGZARR_ANALYSIS__ALERTS__LINK", "https://a.test/{group}")
    monkeypatch.setenv("ANGZARR_ANALYSIS__ALERTS__WEBHOOKS", "{ops: s3cret")
    with pytest.raises(ConfigurationError) as told:
        load({})
    assert str(told.value).startswith("ANGZARR_ANALYSIS__ALERTS__WEBHOOKS in the environment")
    assert "s3cret" not in str(told.value)


def test_a_refused_item_does_not_make_its_list_too_short_as_well():
    hook = {"url": "https://a.test", "format": "slack", "severities": ["bad"]}
    with pytest.raises(ConfigurationError, match=r"severities\.0: ") as told:
        load({"analysis": {"alerts": {"webhooks": {"ops": hook}}}})
    assert "at least 1 item" not in str(told.value)


@pytest.mark.parametrize("setting", ["rules", "grouping"])
def test_a_file_that_holds_no_list_names_the_setting(tmp_path, setting):
    path = tmp_path / "rules.yaml"
    path.write_text("-name: x")
    analysis = load({"analysis": {setting: str(path)}}).analysis
    read = analysis.written_rules if setting == "rules" else analysis.letter_grouping
    with pytest.raises(ConfigurationError, match=rf"^analysis\.{setting}: .*must hold a list"):
        read()


def test_facts_are_deleted_only_where_a_folder_gets_them_and_budgets_need_them_no_more():
    assert load({}).facts.keep is None
    given = {"keep": "400d", "export": "/var/lib/shop/facts"}
    assert load({"facts": given}).facts.keep == timedelta(days=400)
    assert load({"facts": {"keep": "for ever"}}).facts.keep is None
    with pytest.raises(ConfigurationError, match=r"facts.*name a folder in facts\.export"):
        load({"facts": {"keep": "400d"}})
    with pytest.raises(ConfigurationError, match=r"facts.*keep them for 32 days at least"):
        load({"facts": given | {"keep": "31d"}})


@pytest.mark.parametrize("what", ["books_keep_decisions", "books_keep_rejections"])
def test_what_is_decided_is_known_for_a_week_at_least(what):
    assert getattr(load({}), what) == timedelta(days=180)
    assert getattr(load({what: "for ever"}), what) is None
    assert getattr(load({what: "P7D"}), what) == timedelta(days=7)
    with pytest.raises(ConfigurationError, match=what):
        load({what: 6 * 86_400})


# -- health and grace ----------------------------------------------------------------------


def test_nothing_is_served_unless_a_port_is_set(monkeypatch):
    assert load({}).health.port is None
    monkeypatch.setenv("ANGZARR_HEALTH__PORT", "8081")
    monkeypatch.setenv("ANGZARR_HEALTH__HOST", "::")
    found = load({"health": {"port": 1, "stalled_after": "PT2M"}}).health
    assert (found.port, found.host, found.stalled_after) == (8081, "::", timedelta(minutes=2))


@pytest.mark.parametrize(
    "given",
    [
        {"port": 0},
        {"port": 65536},
        {"host": "http://a"},
        {"host": ""},
        {"host": "a b"},
        {"stalled_after": 44},
        {"stalled_after": 3601},
        {"loop_blocked_after": 0.05},
    ],
)
def test_a_health_endpoint_that_cannot_work_is_refused(given):
    with pytest.raises(ConfigurationError, match=f"health.{next(iter(given))}"):
        load({"health": given})


@pytest.mark.parametrize("given", [-1, 43_201, "soon"])
def test_a_grace_without_bounds_is_refused(given):
    with pytest.raises(ConfigurationError, match="soft_shutdown_timeout"):
        load({"soft_shutdown_timeout": given})


def test_the_grace_of_a_deployment_wins_over_code(monkeypatch, make_app):
    app = make_app()
    app.conf.worker_soft_shutdown_timeout = 5
    app._runtime.check_worker("threads")
    assert app.conf.worker_soft_shutdown_timeout == 5, "as the code says"
    monkeypatch.setenv("ANGZARR_SOFT_SHUTDOWN_TIMEOUT", "PT1M50S")
    app = make_app(soft_shutdown_timeout=20)
    app.conf.worker_soft_shutdown_timeout = 5
    app._runtime.check_worker("threads")
    assert app.conf.worker_soft_shutdown_timeout == 110


@pytest.mark.parametrize(
    "given",
    [{"facts": {"url": "URL"}}, {"ordering": {"url": "URL"}}, {"ledger": "URL"}, {"books": "URL"}],
)
@pytest.mark.parametrize(
    "url", ["redis://:s3cret@host/0", "mysql://u:s3cret@host/x", "shop.db", ""]
)
def test_what_is_not_a_database_is_refused_by_the_name_of_its_setting(given, url):
    ((key, inside),) = given.items()
    named = {key: {"url": url}} if isinstance(inside, dict) else {key: url}
    with pytest.raises(ConfigurationError) as caught:
        load(named)
    place = f"{key}.url" if isinstance(inside, dict) else key
    says = "is a database: write sqlite:///file or postgresql+psycopg://host/name"
    assert str(caught.value) == f"{place}: {says}"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"most_waiting": "x"}, "facts.most_waiting: is a whole number: write it in digits"),
        ({"url": ["a"]}, "facts.url: is one text, no list and no number"),
    ],
)
def test_a_value_of_another_kind_is_told_in_plain_words(given, told):
    with pytest.raises(ConfigurationError, match=told):
        load({"facts": given})
