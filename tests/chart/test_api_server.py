"""What the API server, or KEDA's, would refuse halfway through an installation is refused."""

from __future__ import annotations

import pytest

from chart.rendering import changed, containers, env, pool, refusal, render, values_of


def scaled(*triggers, formula="queued"):
    """Return a pool that KEDA scales, with triggers of its user's."""
    return pool(autoscaling={"kind": "keda", "formula": formula, "extraTriggers": list(triggers)})


def cron(name, **metadata):
    return {"type": "cron", "name": name, "metadata": metadata}


SENTENCES = [
    # A request that is raised alone stands above the limit of the defaults.
    (
        "minimal",
        {"pools": pool(resources={"requests": {"memory": "2Gi"}})},
        'pool "default": resources.requests.memory 2Gi is above resources.limits.memory 512Mi',
    ),
    (
        "minimal",
        {"analysis": {"resources": {"requests": {"cpu": 1}, "limits": {"cpu": "900m"}}}},
        "analysis: resources.requests.cpu 1 is above resources.limits.cpu 900m",
    ),
    (
        "minimal",
        {"pools": pool(minReadySeconds=600)},
        "minReadySeconds 600 is not below progressDeadlineSeconds 600",
    ),
    (
        "minimal",
        {"defaults__extraVolumes": [{"name": "tmp", "emptyDir": {}}]},
        "a volume in extraVolumes is called tmp, as one of the chart's",
    ),
    (
        "minimal",
        {"defaults__extraVolumeMounts": [{"name": "x", "mountPath": "/etc/angzarr/"}]},
        "extraVolumeMounts has /etc/angzarr/, where the chart mounts a volume itself",
    ),
    ("spool", {"spool__path": "/etc/angzarr/"}, "spool.path /etc/angzarr is taken"),
    (
        "spool",
        {"fullnameOverride": "shop", "defaults__extraVolumeMounts": [
            {"name": "x", "mountPath": "/var/lib/angzarr/spool"}]},
        "extraVolumeMounts has /var/lib/angzarr/spool",
    ),
    # Variables: of two with one name a server-side apply takes none.
    (
        "spool",
        {"extraEnv": [{"name": "ANGZARR_DLQ__SPOOL__PATH", "value": "/x"}]},
        "ANGZARR_DLQ__SPOOL__PATH would be set twice in one container",
    ),
    (
        "minimal",
        {"pools": pool(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}])},
        "A would be set twice",
    ),
    (
        "existing-secrets",
        {"secretEnv": {"ANGZARR_LEDGER_MIGRATE": {"name": "a", "key": "b"}}},
        "ANGZARR_LEDGER_MIGRATE would be set twice",
    ),
    (
        "minimal",
        {"extraEnv": [{"name": "A", "value": "1", "valueFrom": {"fieldRef": {}}}]},
        "A has a value and a valueFrom",
    ),
    # KEDA: a name that is no identifier breaks the formula, and with it all of the scaling.
    (
        "keda-redis",
        {"pools": scaled(cron("my-cron"), formula="max(queued, my-cron)")},
        'the trigger "my-cron" cannot stand in autoscaling.formula',
    ),
    ("keda-redis", {"pools": scaled(cron("("))}, 'the trigger "(" cannot stand'),
    (
        "keda-redis",
        {"pools": scaled(cron("q0_3"), formula="queued + q0_3")},
        "another trigger is called q0_3 already",
    ),
    (
        "keda-redis",
        {"pools": scaled(cron("a"), cron("a"), formula="queued + a")},
        "another trigger is called a already",
    ),
    (
        "keda-redis",
        {"keda__redis__passwordSecret": {"name": "redis"}},
        "keda.redis.passwordSecret must say the name of an existing Secret and its key",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "sentence"), SENTENCES)
def test_what_would_be_refused_later_is_told_in_one_sentence(name, changes, sentence):
    said = refusal(name, **changes)
    assert sentence in said
    assert "\n" not in said.strip()


PLACES = [
    ({"pools": pool(probes={"liveness": {"successThreshold": 2}})}, "liveness/successThreshold"),
    ({"pools": scaled(cron("a", desiredReplicas=5), formula="a")}, "metadata/desiredReplicas"),
    ({"pools": scaled({"name": "a", "metadata": {}}, formula="a")}, "missing property 'type'"),
    ({"defaults": {"podLabels": {"team": "the shop"}}}, "/defaults/podLabels/team"),
    ({"defaults": {"nodeSelector": {"a": "/"}}}, "/defaults/nodeSelector/a"),
    ({"extraEnv": [{"name": "A B", "value": ""}]}, "/extraEnv/0/name"),
    ({"secretEnv": {"A": {"name": "Orders_1", "key": "k"}}}, "/secretEnv/A/name"),
    ({"secretEnv": {"A": {"name": "a", "key": "a b"}}}, "/secretEnv/A/key"),
    ({"imagePullSecrets": [{"name": ""}]}, "/imagePullSecrets/0/name"),
    ({"dashboard": {"ingress": {"hosts": ["https://a.b"]}}}, "/dashboard/ingress/hosts/0"),
    ({"networkPolicy": {"nodeCIDRs": ["10.0.0.1"]}}, "/networkPolicy/nodeCIDRs/0"),
]


@pytest.mark.parametrize(("changes", "place"), PLACES)
def test_what_would_be_refused_later_is_told_with_its_place(changes, place):
    assert place in refusal("minimal", **changes)


@pytest.mark.parametrize(
    ("request_", "limit"),
    [("512Mi", "512Mi"), ("1G", "1Gi"), ("1500m", 2), ("0.5", "500m"), (1, 1), ("1Ei", "2Ei")],
)
def test_a_request_up_to_its_limit_is_taken(request_, limit):
    resources = {"requests": {"memory": request_}, "limits": {"memory": limit}}
    assert render(changed(values_of("minimal"), pools=pool(resources=resources)))


@pytest.mark.parametrize(
    ("name", "release"),
    [("spool", "shop.eu"), ("service-monitor", "2048"), ("network-policy", "a.b")],
)
def test_a_name_that_no_service_can_have_is_refused_where_there_is_one(name, release):
    from chart.rendering import Refused

    with pytest.raises(Refused, match="set fullnameOverride"):
        render(values_of(name), release=release)
    assert render(values_of("minimal"), release=release)
    assert render(changed(values_of(name), fullnameOverride="shop"), release=release)


def test_a_roles_own_variable_wins_over_the_one_of_all():
    values = changed(
        values_of("minimal"),
        extraEnv=[{"name": "A", "value": "all"}, {"name": "B", "value": "all"}],
        pools=pool(env=[{"name": "A", "value": "pool"}]),
    )
    pods = dict(render(values).pod_templates())
    worker = env(containers(pods["t-angzarr-worker-default"])[-1])
    analysis = env(containers(pods["t-angzarr-dlq-analysis"])[-1])
    assert (worker["A"], worker["B"], analysis["A"]) == ("pool", "all", "all")


@pytest.mark.parametrize("name", ["DB_PASSWORD_FILE", "VAULT_SECRET_PATH", "SECRET_ARN"])
def test_where_a_secret_lies_is_no_secret(name):
    values = changed(values_of("minimal"), extraEnv=[{"name": name, "value": "/run/secrets/db"}])
    assert render(values)
