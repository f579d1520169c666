"""With a network policy nothing may connect but what must, and probes always can."""

from __future__ import annotations

import pytest

from chart.rendering import changed, render, rendered, values_of

SET = "network-policy"


def policies():
    return {
        one["metadata"]["name"].removeprefix("t-angzarr-"): one["spec"]
        for one in rendered(SET).all("NetworkPolicy")
    }


def ports_of(pod):
    return {port["name"] for one in pod["spec"]["containers"] for port in one.get("ports", [])}


def test_every_pod_of_the_release_is_closed_by_default():
    default = policies()["default"]
    assert default["policyTypes"] == ["Ingress", "Egress"]
    assert default["ingress"] == []
    chosen = default["podSelector"]["matchLabels"].items()
    for _, pod in rendered(SET).pod_templates():
        assert chosen <= pod["metadata"]["labels"].items()


@pytest.mark.parametrize(
    ("policy", "port", "namespace", "roles"),
    [
        ("health", "health", "monitoring", {"worker-default", "dlq-analysis"}),
        ("dashboard", "http", "ingress-nginx", {"dashboard"}),
    ],
)
def test_a_port_is_open_to_one_namespace_and_to_the_kubelet(policy, port, namespace, roles):
    spec = policies()[policy]
    (rule,) = spec["ingress"]
    assert rule["from"] == [
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}},
        {"ipBlock": {"cidr": "10.1.0.0/16"}},
    ]
    assert rule["ports"] == [{"port": port, "protocol": "TCP"}]
    chosen = spec["podSelector"]["matchLabels"].items()
    found = {
        name.removeprefix("t-angzarr-"): pod
        for name, pod in rendered(SET).pod_templates()
        if chosen <= pod["metadata"]["labels"].items()
    }
    assert {name.removeprefix("worker-") for name in found} == {
        name.removeprefix("worker-") for name in roles
    }
    assert all(port in ports_of(pod) for pod in found.values())


def test_a_probe_asks_no_port_that_the_kubelet_may_not_reach():
    opened = {
        (tuple(sorted(spec["podSelector"]["matchLabels"].items())), port["port"])
        for spec in policies().values()
        for rule in spec["ingress"]
        if {"ipBlock": {"cidr": "10.1.0.0/16"}} in rule["from"]
        for port in rule["ports"]
    }
    for maker in rendered(SET).workloads():
        pod = maker["spec"]["template"]
        labels = pod["metadata"]["labels"].items()
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            asked = pod["spec"]["containers"][0][probe]["httpGet"]["port"]
            assert any(set(chosen) <= set(labels) and port == asked for chosen, port in opened)


def test_what_goes_out_is_names_and_what_was_said():
    dns, rule = policies()["default"]["egress"]
    assert {(one["port"], one["protocol"]) for one in dns["ports"]} == {(53, "UDP"), (53, "TCP")}
    assert rule["to"] == [{"ipBlock": {"cidr": "10.2.0.0/16"}}]


def test_without_a_word_about_egress_it_is_open():
    (default,) = [
        one["spec"]
        for one in rendered("many-pools").all("NetworkPolicy")
        if one["metadata"]["name"].endswith("-default")
    ]
    assert default["policyTypes"] == ["Ingress"]
    assert "egress" not in default


def test_people_come_to_the_dashboard_by_the_names_it_knows():
    chart = rendered(SET)
    (container,) = chart.one("Deployment", "-dashboard")["spec"]["template"]["spec"]["containers"]
    told = {one["name"]: one.get("value") for one in container["env"]}
    assert told["ANGZARR_DASHBOARD__HOSTS"] == '["dlq.example.com"]'
    assert told["FORWARDED_ALLOW_IPS"] == "10.0.0.0/8"
    (rule,) = chart.one("Ingress")["spec"]["rules"]
    service = rule["http"]["paths"][0]["backend"]["service"]
    assert service["name"] == chart.one("Service", "-dashboard")["metadata"]["name"]


def test_where_pods_have_ipv6_alone_it_is_listened_on():
    chart = render(changed(values_of(SET), listenOn="::"))
    told = [
        one["value"]
        for _, pod in chart.pod_templates()
        for container in pod["spec"]["containers"]
        for one in container["env"]
        if one["name"] == "ANGZARR_HEALTH__HOST"
    ]
    assert set(told) == {"::"}
    (container,) = chart.one("Deployment", "-dashboard")["spec"]["template"]["spec"]["containers"]
    assert container["args"][container["args"].index("--host") + 1] == "::"


def test_several_namespaces_are_let_in_and_those_of_the_defaults_are_not():
    """Maps would be merged: one namespace would have to bear both labels, and none does."""
    namespaces = [{"matchLabels": {"team": "watch"}}, {"matchLabels": {"team": "pager"}}]
    chart = render(changed(values_of(SET), networkPolicy__monitoringNamespaces=namespaces))
    (rule,) = chart.one("NetworkPolicy", "-health")["spec"]["ingress"]
    assert [one["namespaceSelector"] for one in rule["from"][:2]] == namespaces
    assert len(rule["from"]) == 3


def test_where_nobody_is_named_nobody_comes_in():
    """A rule whose list of sources is empty lets everybody in."""
    closed = {"monitoringNamespaces": [], "ingressNamespaces": [], "nodeCIDRs": []}
    values = changed(values_of(SET), **{f"networkPolicy__{key}": closed[key] for key in closed})
    for one in render(values).all("NetworkPolicy"):
        assert one["spec"]["ingress"] == []
