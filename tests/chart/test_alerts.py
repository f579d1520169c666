"""Alerts: PromQL that Prometheus reads, about metrics that exist, each with a page that helps."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest
import yaml

from chart.rendering import CHART, CHECKOUT, changed, render, rendered, tools, values_of

RULES = CHART / "files" / "alerts.yaml"
CASES = Path(__file__).with_name("alerts.test.yaml")
#: Those that the specification names (O2).
NAMED = {
    "DLQBacklog", "DLQGrowing", "HighErrorRate", "HighFailureRate", "RetryExhaustion",
    "SagaCompensationFailed", "ProjectionLag", "CircuitBreakerOpen",
}  # fmt: skip


def promtool(*arguments):
    ended = subprocess.run(
        [tools()["promtool"], *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def rules():
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return {one["alert"]: one for one in group["rules"]}


def of(chart):
    (group,) = chart.one("PrometheusRule")["spec"]["groups"]
    return {one["alert"]: one for one in group["rules"]}


# -- the file ----------------------------------------------------------------------------------


def test_the_rules_can_be_read_without_the_chart():
    promtool("check", "rules", RULES)


def test_each_alert_fires_when_it_should_and_not_when_it_should_not(tmp_path):
    cases = tmp_path / "cases.yaml"
    cases.write_text(CASES.read_text().replace("[ALERTS]", f"[{RULES}]"))
    promtool("test", "rules", cases)


def test_each_alert_has_a_case_that_fires_and_one_that_does_not():
    seen = defaultdict(set)
    for case in yaml.safe_load(CASES.read_text())["tests"]:
        for one in case["alert_rule_test"]:
            seen[one["alertname"]].add(bool(one["exp_alerts"]))
    assert seen == {name: {True, False} for name in rules()}


def test_every_alert_of_the_specification_is_there():
    assert set(rules()) >= NAMED


def metrics(expression):
    """Return the metrics of an expression: each stands before a selector."""
    return {
        re.sub(r"_(bucket|count|sum)$", "", name) for name in re.findall(r"(\w+)\{", expression)
    }


def documented():
    page = (CHECKOUT / "docs" / "reference" / "metrics.md").read_text()
    names = set()
    for row in re.findall(r"^\| (`[a-z_`, ]+`) \|", page, re.MULTILINE):
        names.update(re.findall(r"`([a-z_]+)`", row))
    return names | {f"{name}_total" for name in names}


@pytest.mark.parametrize("name", sorted(rules()))
def test_an_alert_is_about_metrics_that_exist(name):
    found = metrics(rules()[name]["expr"])
    assert found
    assert found <= documented()


def test_a_metric_that_does_not_exist_is_found():
    assert not metrics("max(dlq_deep{}) > 1") <= documented()


@pytest.mark.parametrize("name", sorted(rules()))
def test_an_alert_says_how_bad_it_is_and_where_help_is(name):
    rule = rules()[name]
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert rule["annotations"]["summary"]
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    headings = re.findall(r"^## (\w+)$", (CHECKOUT / page).read_text(), re.MULTILINE)
    assert name in headings
    assert anchor == name.lower()


def test_open_breakers_wake_people_and_nothing_slow_does():
    severities = {name: one["labels"]["severity"] for name, one in rules().items()}
    assert severities["CircuitBreakerOpen"] == "critical"
    assert {severities[name] for name in NAMED - {"CircuitBreakerOpen"}} == {"warning"}


# -- what the chart makes of it --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["monitoring", "service-monitor", "many-pools"])
def test_what_the_chart_makes_of_it_can_be_read(name, tmp_path):
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(rendered(name).one("PrometheusRule")["spec"]))
    promtool("check", "rules", file)


def test_without_values_the_chart_says_what_the_file_says():
    values = changed(values_of("minimal"), monitoring={"prometheusRule": {"enabled": True}})
    made = of(render(values))
    for name, rule in rules().items():
        plain = re.sub(r" # \w+", "", rule["expr"]).strip()
        assert made[name]["expr"].strip().replace('{namespace="shop"}', "{}") == plain
        assert made[name]["for"] == rule["for"]
        assert made[name]["labels"] == rule["labels"]
        assert made[name]["annotations"] == rule["annotations"]


def test_thresholds_and_durations_come_from_the_values():
    made = of(rendered("monitoring"))
    assert made["DLQBacklog"]["expr"].strip().endswith("> 1e+06")
    assert made["DLQBacklog"]["for"] == "10m"
    assert made["RetryExhaustion"]["expr"].strip().endswith("> 0.05")
    assert "DLQGrowing" not in made
    runbook = made["DLQBacklog"]["annotations"]["runbook_url"]
    assert runbook == "https://docs.example.com/runbooks/alerts/#dlqbacklog"


def test_every_threshold_of_the_values_is_one_of_the_file():
    given = yaml.safe_load((CHART / "values.yaml").read_text())["monitoring"]["prometheusRule"]
    for name, rule in rules().items():
        named = set(re.findall(r"# (\w+)", rule["expr"]))
        assert named == set(given[name]) - {"enabled", "for", "severity"}, name


def test_alerts_of_one_release_are_not_told_of_another():
    own = 'namespace="shop",app_kubernetes_io_instance="t"'
    for rule in of(rendered("monitoring")).values():
        assert set(re.findall(r"\{([^}]*)\}", rule["expr"])) == {own}
    for rule in of(rendered("service-monitor")).values():
        assert set(re.findall(r"\{([^}]*)\}", rule["expr"])) == {'cluster="blue",job="orders"'}


@pytest.mark.parametrize(
    ("name", "kind"), [("monitoring", "PodMonitor"), ("service-monitor", "ServiceMonitor")]
)
def test_the_labels_that_alerts_select_by_are_put_on_metrics(name, kind):
    spec = rendered(name).one(kind)["spec"]
    assert "app.kubernetes.io/instance" in spec["podTargetLabels"]


def test_a_monitor_finds_the_pods_that_serve_metrics():
    chart = rendered("monitoring")
    spec = chart.one("PodMonitor")["spec"]
    chosen = spec["selector"]["matchLabels"].items()
    found = {
        name for name, pod in chart.pod_templates() if chosen <= pod["metadata"]["labels"].items()
    }
    assert found == {"t-angzarr-worker-default", "t-angzarr-dlq-analysis"}
    assert spec["podMetricsEndpoints"][0]["port"] == "health"


def test_a_service_monitor_finds_one_service_alone():
    chart = rendered("service-monitor")
    chosen = chart.one("ServiceMonitor")["spec"]["selector"]["matchLabels"].items()
    found = [one for one in chart.all("Service") if chosen <= one["metadata"]["labels"].items()]
    assert len(found) == 1


# -- Grafana ---------------------------------------------------------------------------------------


def test_the_dashboard_for_grafana_is_about_metrics_that_exist():
    import json

    made = rendered("monitoring").one("ConfigMap", "-grafana")
    assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
    board = json.loads(made["data"]["angzarr.json"])
    asked = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    assert len(asked) > 10
    for expression in asked:
        found = metrics(expression)
        assert found, expression
        assert found <= documented(), expression


def test_every_question_of_the_dashboard_is_promql(tmp_path):
    import json

    board = json.loads((CHART / "files" / "grafana.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    plain = [re.sub(r"\$\w+", "x", one.replace("$__rate_interval", "5m")) for one in asked]
    recorded = [{"record": f"r{number}", "expr": one} for number, one in enumerate(plain)]
    file = tmp_path / "board.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": recorded}]}))
    promtool("check", "rules", file)
