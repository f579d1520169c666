"""angzarr doctor, on apps whose broker is this process: no server is asked."""

from __future__ import annotations

import json
import sys
import types

import pytest
from click.testing import CliRunner

from angzarr.cli.main import main
from angzarr.doctor.report import CHECKS, IDS
from doctoring import stock_app

CLEAN = {
    "task_acks_late": True,
    "task_reject_on_worker_lost": True,
    "task_acks_on_timeout": False,
}
#: What a Celery app has on a broker in memory, and no setting mends.
LEFT = {"embedded-broker", "unreadable-dropped", "no-dead-letters", "retry-drops"}


def serve(monkeypatch, name="app", **found):
    module = types.ModuleType("shop_for_doctor")
    vars(module).update(found)
    monkeypatch.setitem(sys.modules, "shop_for_doctor", module)
    return module


@pytest.fixture
def stock(monkeypatch):
    with stock_app("memory://") as app:
        serve(monkeypatch, app=app)
        yield app


def run(*arguments, **options):
    return CliRunner().invoke(main, ["-A", "shop_for_doctor", "doctor", *arguments], **options)


def found(*arguments, code=1):
    result = run("--format", "json", *arguments)
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def by_severity(told, severity):
    return {one["id"] for one in told["findings"] if one["severity"] == severity}


def test_a_plain_celery_app_is_examined_and_fails(stock):
    told = found()
    assert told["app"] == "app stock"
    assert by_severity(told, "critical") >= {*LEFT, "acks-early", "lost-child-acked"}
    assert told["failed"] is True


def test_mended_settings_are_not_found_any_more(stock):
    stock.conf.update(CLEAN)
    assert by_severity(found(), "critical") == LEFT


@pytest.mark.parametrize(
    ("fail_on", "code"), [("never", 0), ("critical", 1), ("error", 1), ("warning", 1), ("info", 1)]
)
def test_the_exit_code_is_that_of_the_worst_that_counts(stock, fail_on, code):
    assert run("--fail-on", fail_on).exit_code == code


def test_warnings_alone_do_not_fail_unless_they_are_to(stock):
    assert run("--only", "prefetch").exit_code == 0
    assert run("--only", "prefetch", "--fail-on", "warning").exit_code == 1


def test_checks_are_chosen_by_id(stock):
    told = found("--only", "acks-early", "--only", "prefetch")
    assert {one["id"] for one in told["findings"]} == {"acks-early", "prefetch"}
    told = found("--skip", "acks-early")
    assert "acks-early" not in {one["id"] for one in told["findings"]}


@pytest.mark.parametrize("option", ["--only", "--skip"])
def test_a_misspelt_id_is_wrong_usage(stock, option):
    result = run(option, "acks-erly")
    assert result.exit_code == 2
    assert "there is no check 'acks-erly'" in result.output
    assert "--list" in result.output


def test_people_see_what_was_seen_why_and_the_change(stock):
    result = run("--only", "acks-early")
    assert "CRITICAL acks-early app stock" in result.stdout
    lines = [line.strip() for line in result.stdout.splitlines()]
    assert "seen   task_acks_late is False" in lines
    assert "change set task_acks_late = True" in lines
    assert any(line.startswith("why    a worker that dies") for line in lines)
    assert "app stock: 1 critical" in result.stdout


def test_the_worst_stands_first(stock):
    shown = run().stdout
    assert shown.index("CRITICAL") < shown.index("WARNING")


def test_how_long_a_pod_has_to_end_is_compared(stock):
    stock.conf.worker_soft_shutdown_timeout = 7.5
    assert "grace-period" in by_severity(found("--grace", "10"), "error")
    assert "grace-period" not in by_severity(found("--grace", "30s"), "error")
    assert run("--grace", "soon").exit_code == 2


def test_the_grace_of_our_setting_is_compared_and_not_that_of_the_code(monkeypatch):
    """A deployment says its own by ANGZARR_SOFT_SHUTDOWN_TIMEOUT, which wins in a worker."""
    from angzarr import Angzarr

    with Angzarr("shop", broker="memory://", dlq={"backend": "channel"}) as app:
        app.conf.worker_soft_shutdown_timeout = 1
        serve(monkeypatch, app=app)
        only = ["--only", "grace-period", "--grace", "30s"]
        assert found(*only, code=0)["findings"] == []
    with Angzarr(
        "shop", broker="memory://", dlq={"backend": "channel"}, soft_shutdown_timeout=28
    ) as app:
        serve(monkeypatch, app=app)
        assert by_severity(found(*only), "error") == {"grace-period"}


def test_all_checks_are_listed_without_an_app():
    result = CliRunner().invoke(main, ["doctor", "--list", "--format", "json"])
    assert result.exit_code == 0
    listed = json.loads(result.stdout)
    assert [one["id"] for one in listed] == [check.id for check in CHECKS]
    assert {tuple(one) for one in listed} == {
        ("id", "severity", "area", "looks_at", "why", "fixable")
    }
    shown = CliRunner().invoke(main, ["doctor", "--list"]).stdout
    assert [one for one in IDS if one not in shown] == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no_such_module", "there is no module 'no_such_module'"),
        ("shop_for_doctor:other", "module 'shop_for_doctor' has no attribute 'other'"),
        ("json", "module 'json' has no Celery app"),
    ],
)
def test_a_wrong_name_is_told_in_one_sentence(stock, name, said):
    result = CliRunner().invoke(main, ["-A", name, "doctor"])
    assert result.exit_code == 2
    assert said in result.output
    assert "Traceback" not in result.output


def test_no_app_at_all_is_wrong_usage():
    result = CliRunner().invoke(main, ["doctor"], env={"ANGZARR_APP": ""})
    assert result.exit_code == 2
    assert "no app was named" in result.output


def test_a_part_that_cannot_even_be_set_up_hides_no_other(stock, monkeypatch):
    def broken(_patient):
        raise ValueError("hunter2")

    monkeypatch.setattr("angzarr.doctor_probes.redis.probes", broken)
    told = found()
    assert "look-failed" in by_severity(told, "error")
    assert "acks-early" in by_severity(told, "critical")
    assert "hunter2" not in json.dumps(told)


def test_yes_is_an_answer_to_a_question_that_must_be_asked(stock):
    assert run("--yes").exit_code == 2


def test_where_nothing_can_be_mended_that_is_said(stock):
    result = run("--fix", "--fail-on", "never")
    assert result.exit_code == 0
    assert "--fix can fix none of the findings" in result.stderr


def test_a_broker_whose_client_is_missing_or_unknown_is_told(monkeypatch):
    with stock_app("nonsense://x") as app:
        serve(monkeypatch, app=app)
        result = run()
    assert result.exit_code == 1
    assert "the transport of broker_url cannot be had" in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "broker",
    ["redis://:hun/ter2@h:x/0", "amqp://jo:hun/ter2@h//", "redis://:hunter2@h:99999/0"],
)
def test_a_broker_url_that_cannot_be_read_is_told_without_its_password(broker, monkeypatch):
    with stock_app(broker) as app:
        serve(monkeypatch, app=app)
        result = run()
    assert result.exit_code == 1
    assert "broker_url cannot be read" in result.output
    assert "hun" not in result.output
    assert isinstance(result.exception, SystemExit)


@pytest.mark.parametrize("address", ["rabbit:15672", "http://u:hunter2@h:port", "ftp://h"])
def test_an_address_of_the_management_interface_that_is_none_is_wrong_usage(stock, address):
    for result in (
        run("--management", address),
        run(env={"RABBITMQ_MANAGEMENT_URL": address}),
    ):
        assert result.exit_code == 2
        assert "must read http://user:password@host:15672" in result.output
        assert "hunter2" not in result.output
    assert run("--fail-on", "never", env={"RABBITMQ_MANAGEMENT_URL": ""}).exit_code == 0
