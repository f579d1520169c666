"""Each mistake is refused: by the schema with its place, or by a sentence that says what to do."""

from __future__ import annotations

import re

import pytest

from chart.rendering import Refused, changed, pool, refusal, render, values_of


def scaled(**changes):
    return pool(autoscaling={"kind": "keda", **changes})


# -- sentences of the templates --------------------------------------------------------------

SENTENCES = [
    ("minimal", {"app": None}, "set app to your module"),
    ("minimal", {"image__repository": None}, "set image.repository to your image"),
    ("minimal", {"image__tag": None}, "set image.tag to the version of your image"),
    ("minimal", {"image__tag": "latest"}, "image.tag latest tells no release"),
    ("openshift-digest", {"release": None}, "image.digest alone does not name a release"),
    ("minimal", {"pools": pool() + pool()}, 'two pools are called "default"'),
    ("minimal", {"pools": pool(queues=["a", "a"])}, "names a queue twice"),
    (
        "minimal",
        {"pools": pool(pool="gevent", maxTasksPerChild=5)},
        '"default": maxTasksPerChild is for processes, and a gevent pool never replaces its',
    ),
    (
        "minimal",
        {"pools": pool(pool="prefork", processes=2)},
        "processes and autoscale are for angzarr worker, and pool prefork runs celery worker",
    ),
    (
        "minimal",
        {"pools": pool(pool="gevent", autoscale={"least": 1, "most": 2})},
        "processes and autoscale are for angzarr worker, and pool gevent runs celery worker",
    ),
    ("minimal", {"pools": pool(pool="solo", threads=2)}, "or say concurrency in place of"),
    ("minimal", {"pools": pool(coroutines=9, threads=2)}, "and excludes threads and pool"),
    ("minimal", {"pools": pool(pool="gevent", coroutines=9)}, "and excludes threads and pool"),
    (
        "minimal",
        {"pools": pool(processes=2, autoscale={"least": 1, "most": 2})},
        "processes and autoscale exclude each other",
    ),
    (
        "minimal",
        {"pools": pool(autoscale={"least": 3, "most": 2})},
        "autoscale.most 2 is below least 3",
    ),
    ("minimal", {"pools": pool(replicas=0)}, "no pool keeps a pod: workers send what is delayed"),
    ("keda-redis", {"pools": scaled(minReplicas=0)}, "no pool keeps a pod"),
    (
        "minimal",
        {"pools": pool(maxUnavailable=0, maxSurge="0%")},
        "no pod could ever be replaced",
    ),
    (
        "keda-redis",
        {"pools": scaled(minReplicas=5, maxReplicas=2)},
        "autoscaling.maxReplicas 2 is below minReplicas 5",
    ),
    (
        "hpa",
        {"pools": [*pool(), {"name": "b", "queues": ["b"], "autoscaling": {"minReplicas": 0}}]},
        "hpa keeps at least one pod",
    ),
    (
        "hpa",
        {"pools": pool(autoscaling={"targetCPU": None, "targetMemory": None})},
        "hpa needs autoscaling.targetCPU or targetMemory",
    ),
    (
        "hpa",
        {"pools": pool(resources={"requests": {"cpu": None}})},
        "resources.requests.cpu, which is missing",
    ),
    ("keda-redis", {"keda": None}, "set keda.redis.address to host:port"),
    (
        "keda-rabbitmq",
        {"secretEnv__CELERY_BROKER_URL": None},
        "set secretEnv.CELERY_BROKER_URL or keda.rabbitmq.hostSecret",
    ),
    ("keda-sqs-irsa", {"keda": None}, "set keda.sqs.queueURLPrefix"),
    ("keda-kafka", {"config__dlq__kafka_brokers": None}, "set config.dlq.kafka_brokers"),
    ("keda-kafka", {"analysis__autoscaling__source": None}, "say where letters wait"),
    ("keda-kafka", {"analysis__autoscaling__domains": None}, "name the domains"),
    (
        "keda-redis",
        {"pools": scaled(extraTriggers=[{"type": "cron"}])},
        "a cron trigger in autoscaling.extraTriggers needs a name",
    ),
    (
        "keda-redis",
        {"pools": scaled(extraTriggers=[{"type": "cron", "name": "morning"}])},
        "say how in autoscaling.formula, e.g. max(queued, morning * 20)",
    ),
    ("beat", {"pools": [], "beat": {"enabled": False}}, "nothing would run"),
    ("minimal", {"beat": {"enabled": True, "terminationGracePeriodSeconds": 5,
                          "preStopSleepSeconds": 5}}, "beat: preStopSleepSeconds 5 is not below"),
    ("minimal", {"secretEnv__ANGZARR_LEDGER": None}, "the analysis worker needs a ledger"),
    ("keda-rabbitmq", {"secretEnv__ANGZARR_STORE": None}, "a rabbitmq broker keeps no claims"),
    ("beat", {"migrations": {"enabled": True}}, "migrations need a database"),
    ("beat", {"migrations__exclusive": True}, "migrations.exclusive forbids"),
    ("minimal", {"dashboard": {"enabled": True}}, "the dashboard needs a token"),
    (
        "many-pools",
        {"dashboard": {"enabled": True}},
        "must know by which names people reach it",
    ),
    (
        "network-policy",
        {"secretEnv__ANGZARR_DASHBOARD__SESSION_KEY": None,
         "secretEnv": {"ANGZARR_LEDGER": {"name": "a", "key": "b"}}},
        "several dashboards know each other's sessions",
    ),
    ("network-policy", {"dashboard__ingress__hosts": None}, "dashboard.ingress.hosts"),
    ("network-policy", {"dashboard__enabled": False}, "leads nowhere"),
    (
        "network-policy",
        {"dashboard__terminationGracePeriodSeconds": 15},
        "dashboard: preStopSleepSeconds 5 + requests under way 10 = 15 s",
    ),
    ("network-policy", {"networkPolicy__egress__rules": None}, "lets no worker reach its broker"),
    ("network-policy", {"networkPolicy__enabled": False}, "needs networkPolicy.enabled: true"),
    ("existing-secrets", {"serviceAccount__name": None}, "needs serviceAccount.name"),
    ("monitoring", {"monitoring__serviceMonitor": {"enabled": True}}, "enable one of them"),
    ("spool", {"config__dlq__targets": ["kafka"]}, "set config.dlq.targets to your queue"),
    ("spool", {"spool__enabled": False}, "set spool.enabled: true"),
    ("spool", {"config__dlq__spool": {"path": "/x"}}, "config.dlq.spool is said by spool.path"),
    ("spool", {"spool__size": "5Gi"}, "spool.maxBytes 5368709120 does not fit into spool.size 5Gi"),
    ("minimal", {"secretEnv": {"X": {"name": "s"}}}, "secretEnv.X must say the name of"),
    (
        "minimal",
        {"secretEnv": {"ANGZARR_APP": {"name": "s", "key": "k"}}},
        "ANGZARR_APP is set by the chart: remove it from secretEnv",
    ),
    (
        "minimal",
        {"extraEnv": [{"name": "ANGZARR_SOFT_SHUTDOWN_TIMEOUT", "value": "3"}]},
        "ANGZARR_SOFT_SHUTDOWN_TIMEOUT is set by the chart",
    ),
    (
        "minimal",
        {"extraEnv": [{"name": "ANGZARR_LEDGER", "value": "sqlite:///x"}]},
        "ANGZARR_LEDGER stands in secretEnv and in extraEnv",
    ),
    ("minimal", {"extraEnv": [{"value": "x"}]}, "has no name"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "sentence"), SENTENCES)
def test_a_mistake_is_told_in_one_sentence(name, changes, sentence):
    said = refusal(name, **changes)
    assert sentence in said
    assert "\n" not in said.strip()


# -- grace ---------------------------------------------------------------------------------------


def test_a_soft_time_out_longer_than_the_grace_period_is_refused():
    said = refusal("minimal", pools=pool(softShutdownTimeoutSeconds=60))
    assert said == (
        'pool "default": preStopSleepSeconds 0 + softShutdownTimeoutSeconds 60 + 10 = 70 s are'
        " not below terminationGracePeriodSeconds 30, so SIGKILL would come first: set"
        " terminationGracePeriodSeconds to 71 or more"
    )


@pytest.mark.parametrize(
    ("kind", "stop", "soft", "grace", "fits"),
    [
        ("", 0, 10, 20, False),  # exactly as long: SIGKILL may be first
        ("", 0, 9.9, 20, True),
        ("solo", 5, 15, 30, False),
        ("threads", 5, 14.9, 30, True),
        ("prefork", 0, 7.5, 10, False),
        ("prefork", 0, 7.4, 10, True),
        ("prefork", 0, 7.5, 11, True),
        ("gevent", 5, 22.5, 30, False),
        ("gevent", 5, 22.4, 30, True),
        ("prefork", 20, 7.5, 30, False),
    ],
)
def test_the_pause_the_soft_time_out_and_the_rest_stay_below_the_grace_period(
    kind, stop, soft, grace, fits
):
    pools = pool(
        pool=kind,
        preStopSleepSeconds=stop,
        softShutdownTimeoutSeconds=soft,
        terminationGracePeriodSeconds=grace,
    )
    if fits:
        found = render(changed(values_of("minimal"), pools=pools))
        spec = found.one("Deployment", "worker-default")["spec"]["template"]["spec"]
        assert spec["terminationGracePeriodSeconds"] == grace
    else:
        assert "SIGKILL would come first" in refusal("minimal", pools=pools)


def test_the_grace_period_that_is_proposed_is_taken():
    said = refusal("minimal", pools=pool(softShutdownTimeoutSeconds=110, preStopSleepSeconds=3))
    proposed = int(re.search(r"to (\d+) or more", said).group(1))
    assert render(
        changed(
            values_of("minimal"),
            pools=pool(
                softShutdownTimeoutSeconds=110,
                preStopSleepSeconds=3,
                terminationGracePeriodSeconds=proposed,
            ),
        )
    )


@pytest.mark.parametrize(
    ("name", "visible", "grace", "fits"),
    [
        ("minimal", 30, 30, False),
        ("minimal", 31, 30, True),
        ("minimal", None, 4000, True),  # our transport has no visibility time-out
        ("keda-sqs-irsa", None, 1800, False),  # Celery's own on SQS
        ("keda-sqs-irsa", None, 1799, True),
        ("keda-sqs-irsa", 3600, 1800, True),
    ],
)
def test_the_grace_period_stays_below_the_visibility_time_out(name, visible, grace, fits):
    pools = pool(visibilityTimeoutSeconds=visible, terminationGracePeriodSeconds=grace)
    if fits:
        assert render(changed(values_of(name), pools=pools))
    else:
        said = refusal(name, pools=pools)
        assert "gives a message to a second worker" in said
        assert "broker_transport_options" in said


# -- secrets ------------------------------------------------------------------------------------

SECRET = "hunter2-never-shown"


@pytest.mark.parametrize(
    ("changes", "variable"),
    [
        ({"config__ledger": f"postgresql+psycopg://a:{SECRET}@db/x"}, "ANGZARR_LEDGER"),
        ({"config__dlq__amqp_url": f"amqp://:{SECRET}@mq"}, "ANGZARR_DLQ__AMQP_URL"),
        ({"config__ledger": f"postgresql+psycopg://db/x?password={SECRET}"}, "ANGZARR_LEDGER"),
        (
            {"config__dlq__kafka_options": {"sasl.password": SECRET}},
            "ANGZARR_DLQ__KAFKA_OPTIONS",
        ),
        (
            {"config__dlq__aws_options": {"aws_secret_access_key": SECRET}},
            "ANGZARR_DLQ__AWS_OPTIONS",
        ),
        ({"config__dlq__signing_keys": {"k1": SECRET}}, "ANGZARR_DLQ__SIGNING_KEYS"),
        ({"config__dlq__encryption_keys": {"k1": SECRET}}, "ANGZARR_DLQ__ENCRYPTION_KEYS"),
        (
            {"config__payloads__encryption_keys": {"k1": SECRET}},
            "ANGZARR_PAYLOADS__ENCRYPTION_KEYS",
        ),
        ({"config__dashboard": {"session_key": SECRET}}, "ANGZARR_DASHBOARD__SESSION_KEY"),
        (
            {"config__analysis": {"alerts": {"webhooks": {"a": {"secrets": [SECRET]}}}}},
            "ANGZARR_ANALYSIS__ALERTS__WEBHOOKS",
        ),
        (
            {"config__routes": [f"https://a:{SECRET}@b"]},
            "ANGZARR_ROUTES",
        ),
        ({"extraEnv": [{"name": "DB", "value": f"mysql://a:{SECRET}@b"}]}, "DB"),
        ({"extraEnv": [{"name": "DB_PASSWORD", "value": SECRET}]}, "DB_PASSWORD"),
        ({"analysis": {"env": [{"name": "DB_PASSWORD", "value": SECRET}]}}, "DB_PASSWORD"),
        ({"pools": pool(env=[{"name": "B", "value": f"redis://:{SECRET}@b"}])}, "B"),
    ],
)
def test_a_password_in_values_is_refused_and_not_repeated(changes, variable):
    said = refusal("minimal", **changes)
    assert f"secretEnv.{variable}" in said
    assert "plain text" in said
    assert SECRET not in said


@pytest.mark.parametrize(
    "changes",
    [
        {"pools": pool(extraArgs=["--broker", f"redis://:{SECRET}@redis"])},
        {"keda": {"redis": {"address": f"redis://:{SECRET}@redis:6379"}}},
        {"defaults": {"podAnnotations": {"a": f"https://a:{SECRET}@b"}}},
    ],
)
def test_a_password_in_an_argument_is_refused_and_not_repeated(changes):
    said = refusal("minimal", **changes)
    assert "is an address with a password" in said
    assert SECRET not in said


@pytest.mark.parametrize(
    "address",
    [
        "postgresql+psycopg://angzarr@db/angzarr",
        "redis://redis:6379/0",
        "https://dash.example.com:8443/groups/{group}",
    ],
)
def test_an_address_without_a_password_may_stand_in_values(address):
    assert render(changed(values_of("minimal"), config__ledger=address, secretEnv={
        "CELERY_BROKER_URL": {"name": "orders", "key": "broker"}}))  # fmt: skip


# -- the schema ----------------------------------------------------------------------------------

MISTAKES = [
    ({"pool": []}, "'pool'"),
    ({"app": "my app"}, "/app"),
    ({"image__digest": "sha256:short"}, "/image/digest"),
    ({"image__tags": "1"}, "'tags'"),
    ({"logLevel": "loud"}, "/logLevel"),
    ({"broker": {"type": "kafka"}}, "/broker/type"),
    ({"pools": [{"name": "default"}]}, "queues"),
    ({"pools": [{"queues": ["celery"]}]}, "name"),
    ({"pools": pool(name="Bulk")}, "/pools/0/name"),
    ({"pools": pool(name="b" * 31)}, "/pools/0/name"),
    ({"pools": pool(queues=[])}, "/pools/0/queues"),
    ({"pools": pool(queues=["a,b"])}, "/pools/0/queues/0"),
    ({"pools": pool(pool="eventlet")}, "/pools/0/pool"),
    ({"pools": pool(concurrency=0)}, "/pools/0/concurrency"),
    ({"pools": pool(concurrency="4")}, "/pools/0/concurrency"),
    ({"pools": pool(softShutdownTimeoutSeconds=-1)}, "/pools/0/softShutdownTimeoutSeconds"),
    ({"pools": pool(terminationGracePeriodSecond=30)}, "terminationGracePeriodSecond"),
    ({"pools": pool(autoscaling={"kind": "vpa"})}, "/pools/0/autoscaling/kind"),
    ({"pools": pool(autoscaling={"maxReplica": 3})}, "maxReplica"),
    ({"pools": pool(pdb={"maxUnavailable": "half"})}, "/pools/0/pdb/maxUnavailable"),
    ({"pools": pool(probes={"liveness": {"period": 1}})}, "period"),
    ({"pools": pool(tmpSize="64 MB")}, "/pools/0/tmpSize"),
    ({"defaults": {"spreadOrElse": "Never"}}, "/defaults/spreadOrElse"),
    ({"defaults": {"queues": ["x"]}}, "queues"),
    ({"secretEnv": {"lower": {"name": "a", "key": "b"}}}, "lower"),
    ({"secretEnv": {"A": {"name": "a", "key": "b", "roles": ["cook"]}}}, "/secretEnv/A/roles/0"),
    ({"secretEnv": {"A": {"value": "x"}}}, "value"),
    ({"extraEnv": [{"name": "A", "value": 1}]}, "/extraEnv/0/value"),
    ({"dashboard": {"port": 80}}, "/dashboard/port"),
    ({"dashboard": {"service": {"type": "ExternalName"}}}, "/dashboard/service/type"),
    ({"beat": {"replicas": 2}}, "replicas"),
    ({"migrations": {"backoffLimit": -1}}, "/migrations/backoffLimit"),
    ({"doctor": {"failOn": "info"}}, "/doctor/failOn"),
    ({"spool": {"path": "spool"}}, "/spool/path"),
    ({"spool": {"accessModes": ["ReadWriteMany"]}}, "/spool/accessModes/0"),
    ({"keda": {"redis": {"url": "redis://x"}}}, "url"),
    ({"keda": {"sqs": {"identityOwner": "me"}}}, "/keda/sqs/identityOwner"),
    ({"analysis": {"autoscaling": {"source": "redis"}}}, "/analysis/autoscaling/source"),
    ({"security": {"uid": 0}}, "/security/uid"),
    ({"monitoring": {"podMonitor": {"interval": "often"}}}, "/monitoring/podMonitor/interval"),
    (
        {"monitoring": {"prometheusRule": {"DLQBacklog": {"severity": "loud"}}}},
        "/monitoring/prometheusRule/DLQBacklog/severity",
    ),
    ({"monitoring": {"prometheusRule": {"DLQBacklog": {"share": 1}}}}, "share"),
    ({"networkPolicy": {"egress": {"rules": ["all"]}}}, "/networkPolicy/egress/rules/0"),
]


@pytest.mark.parametrize(("changes", "place"), MISTAKES)
def test_a_value_that_does_not_fit_is_told_with_its_place(changes, place):
    said = refusal("minimal", **changes)
    assert "values don't meet the specifications of the schema" in said
    assert place in said


def test_a_value_that_was_emptied_is_told_by_its_name():
    with pytest.raises(Refused, match="missing property 'secretEnv'"):
        render(values_of("minimal") | {"secretEnv": None})
