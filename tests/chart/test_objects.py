"""What hangs together in a release: names, selectors, secrets, hooks, grace, volumes."""

from __future__ import annotations

import itertools
import re

import pytest

from chart.rendering import SETS, changed, containers, env, render, rendered, values_of

#: What the chart says itself; everything else in the environment is the user's.
NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")


def selects(selector, labels):
    return selector.items() <= labels.items()


def pods(chart):
    return [(name, pod["metadata"]["labels"]) for name, pod in chart.pod_templates()]


# -- names and labels ------------------------------------------------------------------------


@pytest.mark.parametrize("name", SETS)
def test_names_are_different_and_short_enough_for_what_is_made_of_them(name):
    objects = rendered(name).objects
    named = [(one["kind"], one["metadata"]["name"]) for one in objects]
    assert len(set(named)) == len(named)
    assert all(NAME.match(one) and len(one) <= 52 for _, one in named)
    assert all(one["metadata"]["namespace"] == "shop" for one in objects)


def test_long_names_are_cut_and_never_become_the_same():
    chart = rendered("openshift-digest")
    names = [one["metadata"]["name"] for one in chart.workloads()]
    assert len(names) == len(set(names)) == 3
    assert len({name[:43] for name in names}) == 1  # the digest is what tells them apart


def test_releases_whose_names_differ_at_the_end_only_do_not_meet():
    long = "a-release-name-of-fifty-three-letters-which-helm-tak"
    one, other = (render(values_of("minimal"), release=f"{long}{end}") for end in "ab")
    assert not {str(x["metadata"]["name"]) for x in one.objects} & {
        str(x["metadata"]["name"]) for x in other.objects
    }


@pytest.mark.parametrize("name", SETS)
def test_objects_have_the_labels_that_kubernetes_recommends(name):
    for one in rendered(name).objects:
        labels = one["metadata"]["labels"]
        assert {
            "app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/version",
            "app.kubernetes.io/component", "app.kubernetes.io/part-of",
            "app.kubernetes.io/managed-by", "helm.sh/chart",
        } <= set(labels)  # fmt: skip
        assert all(re.fullmatch(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", v)
                   for v in labels.values())  # fmt: skip


# -- selectors ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SETS)
def test_a_selector_matches_its_own_pods_and_no_others(name):
    chart = rendered(name)
    for maker in chart.workloads():
        selector = maker["spec"]["selector"]["matchLabels"]
        matched = [pod for pod, labels in pods(chart) if selects(selector, labels)]
        assert matched == [maker["metadata"]["name"]]


@pytest.mark.parametrize("name", SETS)
def test_a_disruption_budget_selects_exactly_its_pool(name):
    chart = rendered(name)
    for budget in chart.all("PodDisruptionBudget"):
        selector = budget["spec"]["selector"]["matchLabels"]
        matched = [pod for pod, labels in pods(chart) if selects(selector, labels)]
        assert matched == [budget["metadata"]["name"]]
        # A broker that is away makes no pod ready, and must not keep a node from being drained.
        assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


@pytest.mark.parametrize("name", SETS)
def test_pods_are_spread_among_their_own(name):
    for maker in rendered(name).workloads():
        template = maker["spec"]["template"]
        for one in template["spec"]["topologySpreadConstraints"]:
            selector = one["labelSelector"]["matchLabels"]
            assert selector == maker["spec"]["selector"]["matchLabels"]


@pytest.mark.parametrize("name", SETS)
def test_a_service_leads_to_pods_with_its_port(name):
    chart = rendered(name)
    for service in chart.all("Service"):
        found = [
            pod
            for _, pod in chart.pod_templates()
            if selects(service["spec"]["selector"], pod["metadata"]["labels"])
        ]
        assert found
        for pod, port in itertools.product(found, service["spec"]["ports"]):
            known = [one["name"] for c in containers(pod) for one in c.get("ports", [])]
            assert port["targetPort"] in known


def test_a_users_label_cannot_take_a_pod_out_of_its_selector():
    labels = {"app.kubernetes.io/component": "mine", "team": "shop"}
    chart = render(changed(values_of("minimal"), defaults={"podLabels": labels}))
    maker = chart.one("Deployment", "worker-default")
    found = maker["spec"]["template"]["metadata"]["labels"]
    assert found["team"] == "shop"
    assert selects(maker["spec"]["selector"]["matchLabels"], found)


# -- environment and secrets ---------------------------------------------------------------------


@pytest.mark.parametrize("name", SETS)
def test_secrets_come_from_secrets_that_exist_and_none_is_made(name):
    chart, values = rendered(name), values_of(name)
    assert chart.all("Secret") == []
    allowed = {(one["name"], one["key"]) for one in values.get("secretEnv", {}).values()}
    for _, pod in chart.pod_templates():
        for container in containers(pod):
            for one in env(container).values():
                if isinstance(one, dict) and "secretKeyRef" in one:
                    ref = one["secretKeyRef"]
                    assert (ref["name"], ref["key"]) in allowed
            given = [one["secretRef"] for one in container.get("envFrom", [])]
            assert given == values.get("secretEnvFrom", [])


def test_a_secret_goes_to_the_roles_that_it_names_alone():
    chart = rendered("keda-redis-sentinel")
    who = {
        name for name, pod in chart.pod_templates() if "ANGZARR_LEDGER" in env(containers(pod)[-1])
    }
    assert who == {"t-angzarr-dlq-analysis", "t-angzarr-migrations", "t-angzarr-test"}
    (doctor, worker) = containers(dict(chart.pod_templates())["t-angzarr-worker-default"])
    assert "ANGZARR_LEDGER" not in env(doctor)
    assert "CELERY_BROKER_URL" in env(worker)


@pytest.mark.parametrize("name", SETS)
def test_no_variable_stands_twice(name):
    for _, pod in rendered(name).pod_templates():
        for container in containers(pod):
            names = [one["name"] for one in container["env"]]
            assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("name", "release"),
    [("minimal", "1.4.0"), ("openshift-digest", "2026-11-24")],
)
def test_the_fleet_is_told_the_release_of_the_image(name, release):
    for _, pod in rendered(name).pod_templates():
        assert {env(one)["ANGZARR_RELEASE"] for one in containers(pod)} == {release}


def test_a_digest_wins_over_a_tag():
    digest = "sha256:" + "ab" * 32
    chart = render(changed(values_of("minimal"), image__digest=digest))
    images = {one["image"] for _, pod in chart.pod_templates() for one in containers(pod)}
    assert images == {f"registry.example.com/shop/orders@{digest}"}


# -- settings ----------------------------------------------------------------------------------


def test_settings_are_read_by_angzarr_as_they_were_written(tmp_path, monkeypatch):
    """Helm writes large numbers as 1e+06, which YAML reads as text: they must stay numbers."""
    from angzarr.settings.settings import load

    config = {
        "prefix": "shop",
        "dlq": {"backend": "kafka", "kafka_brokers": "k:1", "domains": ["a", "b"],
                "payloads": {"url": "s3://letters/shop", "over": 1000000}},
        "analysis": {"alerts": {"link": "https://dash.example.com/groups/{group}?a=1&b=2"}},
        "retry": {"policies": {"slow": {"base": 0.5, "max_delay": 1000000}}},
    }  # fmt: skip
    chart = render(changed(values_of("minimal"), config=config))
    file = tmp_path / "angzarr.yaml"
    file.write_text(chart.one("ConfigMap", "-config")["data"]["angzarr.yaml"])
    monkeypatch.setenv("ANGZARR_CONFIG", str(file))
    read = load({})
    assert read.prefix == "shop"
    assert read.dlq.payloads.over == 1_000_000
    assert read.analysis.alerts.link == "https://dash.example.com/groups/{group}?a=1&b=2"
    assert read.dlq.domains == ("a", "b")


def test_new_settings_replace_the_pods():
    before = rendered("minimal").one("Deployment", "worker-default")
    other = render(changed(values_of("minimal"), config__prefix="shop"))
    after = other.one("Deployment", "worker-default")
    assert before["spec"]["template"] != after["spec"]["template"]


def test_a_newer_chart_alone_replaces_no_pod():
    for maker in rendered("many-pools").workloads():
        assert "helm.sh/chart" in maker["metadata"]["labels"]
        assert "helm.sh/chart" not in maker["spec"]["template"]["metadata"]["labels"]


@pytest.mark.parametrize("name", SETS)
def test_every_variable_of_ours_is_a_setting(name):
    """angzarr refuses variables that it does not know, so a wrong one would stop every pod."""
    from chart.settings_known import known_variables

    said = {
        variable
        for _, pod in rendered(name).pod_templates()
        for container in containers(pod)
        for variable in env(container)
        if variable.startswith("ANGZARR_")
    }
    assert said - known_variables() == set()


# -- hooks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [one for one in SETS if one != "beat"])
def test_what_the_migrations_need_is_made_before_them_by_hooks(name):
    chart = rendered(name)
    job = chart.one("Job")
    weight = int(job["metadata"]["annotations"]["helm.sh/hook-weight"])
    pod = job["spec"]["template"]["spec"]
    hooks = {
        (one["kind"], one["metadata"]["name"]): int(
            one["metadata"]["annotations"]["helm.sh/hook-weight"]
        )
        for one in chart.objects
        if one["metadata"].get("annotations", {}).get("helm.sh/hook") == "pre-install,pre-upgrade"
    }
    if values_of(name).get("serviceAccount", {}).get("create", True):
        assert hooks["ServiceAccount", pod["serviceAccountName"]] < weight
    for volume in pod["volumes"]:
        if "configMap" in volume:
            assert hooks["ConfigMap", volume["configMap"]["name"]] < weight
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"


def test_the_migrations_have_the_rights_of_the_others_on_aws():
    chart = rendered("keda-sqs-irsa")
    key = "eks.amazonaws.com/role-arn"
    roles = {one["metadata"]["annotations"][key] for one in chart.all("ServiceAccount")}
    assert roles == {"arn:aws:iam::123456789012:role/orders"}
    assert len(chart.all("ServiceAccount")) == 2


def test_exclusive_migrations_forbid_it_to_all_others():
    for name, pod in rendered("existing-secrets").pod_templates():
        told = env(containers(pod)[-1]).get("ANGZARR_LEDGER_MIGRATE")
        assert told == (None if name.endswith("-migrations") else "false")


def test_accounts_are_those_that_exist_or_are_made():
    for name in SETS:
        chart = rendered(name)
        made = {one["metadata"]["name"] for one in chart.all("ServiceAccount")}
        for _, pod in chart.pod_templates():
            account = pod["spec"]["serviceAccountName"]
            assert account in made or account == values_of(name)["serviceAccount"]["name"]


# -- running and ending --------------------------------------------------------------------------


@pytest.mark.parametrize("name", SETS)
def test_every_worker_is_looked_at_by_the_doctor_before_it_starts(name):
    wanted = values_of(name).get("doctor", {}).get("enabled", True)
    for maker in rendered(name).workloads():
        init = maker["spec"]["template"]["spec"].get("initContainers", [])
        role = maker["metadata"]["labels"]["app.kubernetes.io/component"]
        if wanted and role in {"worker", "dlq-analysis"}:
            (doctor,) = init
            app = values_of(name)["app"]
            skips = [
                word
                for one in values_of(name).get("doctor", {}).get("skip", [])
                for word in ("--skip", one)
            ]
            told = ["angzarr", "-A", app, "doctor", "--fail-on", "critical", *skips]
            if role == "worker":  # so that it compares them with what the app's code says
                grace = maker["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
                told += ["--grace", f"{grace}s"]
            assert doctor["args"] == told
        else:
            assert init == []


@pytest.mark.parametrize("name", SETS)
def test_probes_ask_the_paths_that_are_served(name):
    for maker in rendered(name).workloads():
        (container,) = maker["spec"]["template"]["spec"]["containers"]
        role = maker["metadata"]["labels"]["app.kubernetes.io/component"]
        asked = {
            probe: container[probe]["httpGet"]["path"] for probe in container if "Probe" in probe
        }
        if role == "beat":
            assert asked == {}
            continue
        live, ready = ("/healthz",) * 2 if role == "dashboard" else ("/livez", "/readyz")
        assert asked == {"startupProbe": live, "livenessProbe": live, "readinessProbe": ready}
        ports = {one["name"]: one["containerPort"] for one in container["ports"]}
        told = {container[probe]["httpGet"]["port"] for probe in asked}
        assert told == set(ports)
        if role != "dashboard":
            assert str(ports["health"]) == env(container)["ANGZARR_HEALTH__PORT"] == "8081"
            assert env(container)["ANGZARR_HEALTH__HOST"] == "0.0.0.0"  # noqa: S104 - compared


def test_the_soft_time_out_of_the_values_is_the_workers():
    chart = rendered("many-pools")
    found = {
        env(containers(maker["spec"]["template"])[-1])["ANGZARR_SOFT_SHUTDOWN_TIMEOUT"]
        for maker in chart.workloads()
        if maker["metadata"]["labels"]["app.kubernetes.io/component"] == "worker"
    }
    assert found == {"110", "7.5"}


def test_a_pause_before_sigterm_is_kubernetes_own():
    chart = rendered("network-policy")
    (container,) = chart.one("Deployment", "-dashboard")["spec"]["template"]["spec"]["containers"]
    assert container["lifecycle"] == {"preStop": {"sleep": {"seconds": 5}}}
    (worker,) = chart.one("Deployment", "worker-default")["spec"]["template"]["spec"]["containers"]
    assert "lifecycle" not in worker


def test_no_container_takes_the_place_of_the_images_entry_point():
    for name in SETS:
        for _, pod in rendered(name).pod_templates():
            assert all("command" not in one for one in containers(pod))


def test_a_pool_is_replaced_pod_by_pod_and_none_is_missing():
    spec = rendered("minimal").one("Deployment", "worker-default")["spec"]
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert spec["minReadySeconds"] == 5


def test_there_is_never_a_second_beat():
    spec = rendered("beat").one("Deployment", "-beat")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert rendered("beat").all("HorizontalPodAutoscaler") == []


# -- spool -------------------------------------------------------------------------------------


def test_a_spool_is_a_volume_of_each_pod_that_outlives_it():
    chart = rendered("spool")
    assert {one["kind"] for one in chart.workloads()} == {"StatefulSet"}
    for maker in chart.workloads():
        (claim,) = maker["spec"]["volumeClaimTemplates"]
        container = maker["spec"]["template"]["spec"]["containers"][0]
        (mount,) = [one for one in container["volumeMounts"] if one["name"] == "spool"]
        assert claim["metadata"]["name"] == "spool"
        assert mount["mountPath"] == env(container)["ANGZARR_DLQ__SPOOL__PATH"]
        assert env(container)["ANGZARR_DLQ__SPOOL__DURABLE"] == "true"
        assert env(container)["ANGZARR_DLQ__SPOOL__MAX_BYTES"] == "5368709120"
        kept = maker["spec"]["persistentVolumeClaimRetentionPolicy"]
        assert kept == {"whenDeleted": "Retain", "whenScaled": "Retain"}
        assert maker["spec"]["template"]["spec"]["securityContext"]["fsGroup"] == 10001
        names = [one["metadata"]["name"] for one in chart.all("Service")]
        assert maker["spec"]["serviceName"] in names


def test_where_there_is_no_spool_there_are_no_volumes():
    assert rendered("minimal").all("StatefulSet") == []
