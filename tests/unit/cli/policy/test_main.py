"""angzarr policy: which policy a failure gets, why, and its schedule."""

from __future__ import annotations

import json
import sys
import types
from typing import ClassVar

import pytest
from click.testing import CliRunner

from angzarr import Angzarr, Category, Projection, Rule, handles
from angzarr.cli.main import main
from angzarr.clock import SystemClock
from angzarr.delivery.delivery import read
from angzarr.events import headers as names
from angzarr.events.event import Message
from angzarr.resilience import ExponentialBackoff, Filtered, NoRetry, Verdict, VerdictRule
from angzarr.resilience.backoff import delay
from angzarr.resilience.policies import POLICIES
from angzarr.wiring.delivery import build_judge

RULES = [
    {"policy": "background", "event_type": "Order*", "tenant": "acme"},
    {"policy": "no_retry", "category": "external"},
    {"policy": "realtime", "time_left": 20},
    {"policy": "picky", "handler": "polapp.picky"},
]


class Refused(Exception):
    """An error that only the app's rules know."""


@pytest.fixture
def app(monkeypatch):
    app = Angzarr(
        "polapp",
        broker="memory://",
        retry={"policies": {"picky": {"retry_on": ["conflict"]}}, "rules": RULES},
        rules=[Rule(matches=Refused, category=Category.CONFLICT, code="REFUSED")],
        verdicts=[VerdictRule(category=Category.BUDGET, verdict=Verdict.SKIP)],
    )

    @app.handler("OrderPlaced", operation="webhook", domain="order", name="polapp.sync")
    def sync(event):
        pass

    @app.handler("OrderPlaced", policy="crm_sync", idempotent=False, name="polapp.crm")
    def crm(event):
        pass

    @app.task(name="polapp.picky")
    def picky():
        pass

    module = types.ModuleType("polapp")
    module.app = app
    monkeypatch.setitem(sys.modules, "polapp", module)
    yield app
    app.close()


@pytest.fixture
def totals(app):
    @app.projection("totals", domains="order")
    class Totals(Projection):
        retry_policy = Filtered(ExponentialBackoff(), retry_on=(TimeoutError, Refused))
        retry_policies: ClassVar = {"OrderShipped": NoRetry()}

        @handles("OrderPlaced")
        def placed(self, event):
            pass

        @handles("OrderShipped")
        def shipped(self, event):
            pass

    return "projection.totals"


@pytest.fixture
def run(app):
    def run(*arguments, code=0):
        result = CliRunner().invoke(main, ["-A", "polapp", "policy", *arguments])
        assert result.exit_code == code, result.output
        return result

    return run


@pytest.fixture
def explained(run):
    def explained(*arguments):
        return json.loads(run("explain", *arguments, "--json").stdout)

    return explained


def test_a_registered_handler_brings_its_operation_type_and_domain(explained):
    found = explained("--handler", "polapp.sync")
    assert found["policy"]["name"] == "webhook"
    assert found["rule"] == "operation= of polapp.sync"
    assert found["case"]["event_type"] == "OrderPlaced"
    assert found["case"]["domain"] == "order"


def test_a_handlers_own_policy_is_a_rule_among_the_others(explained):
    found = explained("--handler", "polapp.crm", "--tenant", "acme")
    told = [(one["rule"], one["matched"], one["decides"], one["why"]) for one in found["tried"]]
    assert told == [
        ("retry.rules[3]", False, False, "handler is polapp.crm"),
        ("policy= of polapp.crm", True, True, "decides"),
        ("retry.rules[0]", True, False, "fits, but comes later in this order"),
        ("retry.rules[1]", False, False, "no error yet"),
        ("events of priority realtime", False, False, "priority is default"),
        ("events of priority background", False, False, "priority is default"),
        ("retry.rules[2]", False, False, "no deadline"),
        ("retry.default", True, False, "fits, but comes later in this order"),
    ]


def test_a_handler_that_is_not_registered_is_said_to_be_unknown(run):
    result = run("explain", "--handler", "polapp.nobody")
    assert "polapp.nobody is not registered here" in result.stderr
    assert "policy default, by retry.default" in result.stdout


def test_the_schedule_is_what_the_policy_waits(explained):
    rows = explained("--priority", "background")["schedule"]
    policy = POLICIES["background"]
    assert [row["after_run"] for row in rows] == list(range(1, policy.max_attempts))
    for row in rows:
        assert row["earliest"] == delay(policy, row["after_run"], 0).total_seconds()
        assert row["latest"] == delay(policy, row["after_run"], 1).total_seconds()
    assert rows[-1]["ends_latest"] == pytest.approx(sum(row["latest"] for row in rows))
    assert {row["in_time"] for row in rows} == {True}


def test_a_projections_policy_for_a_type_is_a_rule_among_the_others(explained, totals):
    found = explained("--handler", totals)
    assert (found["case"]["event_type"], found["case"]["domain"]) == ("", "order")
    assert (found["policy"]["name"], found["rule"]) == (
        "exponential_backoff, filtered",
        "policy= of projection.totals",
    )
    shipped = explained("--handler", totals, "--event-type", "OrderShipped")
    assert shipped["rule"] == "policy for OrderShipped of projection.totals"
    told = [(one["rule"], one["conditions"], one["why"]) for one in found["tried"]]
    assert told[0][0] == "retry.rules[3]"  # an operator's for another handler
    assert told[1] == (
        "policy for OrderShipped of projection.totals",
        {"handler": "projection.totals", "event_type": "OrderShipped"},
        "no event_type",
    )


def test_a_filter_by_class_is_explained_by_the_class_of_the_error(run, explained, totals):
    said = ["--handler", totals, "--error", "TimeoutError"]
    assert [row["earliest"] for row in explained(*said)["schedule"]] == [2, 4, 8]
    refused = explained("--handler", totals, "--error", "ConnectionError")
    only = f"TimeoutError, {__name__}.Refused"
    assert refused["not_retried"] == (
        f"exponential_backoff, filtered retries {only} alone: a dead letter"
    )
    assert refused["policy"]["retry_on"] == only.split(", ")
    unsaid = explained("--handler", totals, "--category", "transient")["not_retried"]
    assert "alone, and which class it is was not said" in unsaid


def test_what_the_other_side_asks_for_is_in_the_schedule_and_bounded(explained):
    (first, *_) = explained("--retry-after", "30s")["schedule"]
    assert (first["earliest"], first["latest"]) == (30, 30.5)
    assert explained("--retry-after", "400d")["retry_after"] == 86_400


def test_the_schedule_ends_with_the_time_that_is_left(explained):
    rows = explained("--handler", "polapp.sync", "--time-left", "40s")["schedule"]
    assert [row["in_time"] for row in rows] == [True, True, None, False]
    assert explained("--time-left", "10s")["rule"] == "retry.rules[2]"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--category", "external"], "no_retry allows one run: a dead letter"),
        (["--category", "budget"], "budget errors are not retried, whatever the policy: skipped"),
        (
            ["--category", "client"],
            "client errors are not retried, whatever the policy: a dead letter",
        ),
        (
            ["--handler", "polapp.picky", "--category", "transient"],
            "picky does not retry transient errors: a dead letter",
        ),
        (
            ["--handler", "polapp.crm", "--category", "server"],
            "server errors are not retried, whatever the policy: a dead letter",
        ),
    ],
)
def test_what_is_not_retried_has_no_schedule_and_says_why(run, explained, arguments, said):
    found = explained(*arguments)
    assert (found["not_retried"], found["schedule"]) == (said, [])
    assert said in run("explain", *arguments).stdout


@pytest.mark.parametrize(
    ("error", "category", "code"),
    [
        ("httpx.ConnectTimeout", "transient", "TIMEOUT"),
        ("TimeoutError", "transient", "TIMEOUT"),
        (f"{__name__}.Refused", "conflict", "REFUSED"),
        ("KeyError", "unknown", "UNKNOWN"),
    ],
)
def test_an_errors_class_is_classified_by_the_apps_rules(explained, error, category, code):
    found = explained("--error", error)
    assert (found["case"]["category"], found["error"]["code"]) == (category, code)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--error", "nope.Nope"], "there is no exception class of this name"),
        (["--error", "json.dumps"], "there is no exception class of this name"),
        (["--error", "KeyError", "--category", "client"], "either --category or --error"),
        (["--time-left", "soon"], "is not a span"),
        (["--category", "transcient"], "'transcient' is not one of"),
    ],
)
def test_what_cannot_be_meant_is_wrong_usage(run, arguments, said):
    assert said in run("explain", *arguments, code=2).stderr


@pytest.mark.parametrize(
    ("span", "seconds"),
    [("30", 30), ("1.5s", 1.5), ("500ms", 0.5), ("5m", 300), ("2 h", 7200), ("1d", 86_400)],
)
def test_a_span_has_a_unit_or_is_seconds(explained, span, seconds):
    assert explained("--time-left", span)["case"]["time_left"] == seconds


def test_people_see_the_rules_in_order_and_bars_that_grow(run):
    lines = run("explain", "--handler", "polapp.sync", "--tenant", "acme").stdout.splitlines()
    assert lines[1].strip() == "policy webhook, by operation= of polapp.sync"
    bars = [line.count("█") for line in lines if "█" in line]
    assert bars == sorted(bars)
    assert len(bars) == POLICIES["webhook"].max_attempts - 1
    assert any(line.startswith("run 5 is the last") for line in lines)


def test_what_comes_too_late_is_the_last_line(run):
    told = run("explain", "--handler", "polapp.sync", "--time-left", "16s").stdout
    assert "perhaps too late" in told
    assert told.count("too late: a dead letter") == 1
    assert "is the last" not in told


def test_list_shows_every_policy_and_every_rule(run):
    told = json.loads(run("list", "--json").stdout)
    assert {one["name"] for one in told["policies"]} == {*POLICIES, "picky"}
    assert [one["rule"] for one in told["rules"] if one["rule"].startswith("retry.rules")] == [
        "retry.rules[3]", "retry.rules[0]", "retry.rules[1]", "retry.rules[2]",
    ]  # fmt: skip
    shown = run("list").stdout
    assert "event_type Order* and tenant acme" in shown
    assert "saga_command" in shown


@pytest.mark.parametrize("handler", ["polapp.sync", "polapp.crm", "polapp.picky"])
@pytest.mark.parametrize("tenant", ["acme", "globex"])
@pytest.mark.parametrize("priority", ["realtime", "default"])
def test_a_worker_chooses_what_is_explained(app, explained, handler, tenant, priority):
    message = Message(
        body=b"", content_type="application/json", content_encoding="utf-8", queue="q",
        headers={
            "id": "1", "task": handler, names.EVENT_TYPE: "OrderPlaced", names.TENANT_ID: tenant,
            names.PRIORITY: priority,
        },
    )  # fmt: skip
    delivery = read(message, args=[{}], kwargs={}, token="", owner="")
    judge = build_judge(app._context, SystemClock())
    said = explained(
        "--handler", handler, "--tenant", tenant, "--priority", priority,
        "--event-type", "OrderPlaced", "--category", "transient",
    )  # fmt: skip
    policy = judge.policy(delivery, app.handlers.get(handler), Category.TRANSIENT)
    assert said["policy"]["name"] == policy.name
