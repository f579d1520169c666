"""Pools are scaled by what waits for them, as our transport and Celery name it."""

from __future__ import annotations

import json
import re

import pytest

from chart.rendering import SETS, Refused, changed, refusal, render, rendered, values_of


def triggers(chart, part="worker-default"):
    return chart.one("ScaledObject", part)["spec"]["triggers"]


def total(chart, part="worker-default"):
    """Return the formula and the names that it may use."""
    spec = chart.one("ScaledObject", part)["spec"]
    counted = [one["name"] for one in spec["triggers"] if one["type"] not in {"cpu", "memory"}]
    return spec["advanced"]["scalingModifiers"]["formula"], counted


# -- what is measured ------------------------------------------------------------------------


def test_keda_looks_at_every_list_that_our_redis_transport_reads():
    from angzarr.adapters.redis.transport import RedisTransport

    channel = object.__new__(RedisTransport.Channel)  # it names lists; no server is asked
    channel.global_keyprefix = "shop:"
    named = [channel._name("celery", step) for step in channel.priority_steps]
    lists = [one["metadata"]["listName"] for one in triggers(rendered("keda-redis"))
             if one["type"] == "redis"]  # fmt: skip
    assert lists == named
    assert lists[1] == "shop:celery\x06\x163"


def test_a_list_name_survives_the_way_through_json_to_the_api_server():
    found = triggers(rendered("keda-redis"))[1]["metadata"]["listName"]
    assert json.loads(json.dumps(found)) == found


def test_sentinels_are_asked_for_the_master():
    one = triggers(rendered("keda-redis-sentinel"))[0]
    assert one["type"] == "redis-sentinel"
    assert one["metadata"]["addresses"] == "sentinel-1:26379,sentinel-2:26379"
    assert one["metadata"]["sentinelMaster"] == "orders"
    assert (one["metadata"]["databaseIndex"], one["metadata"]["enableTLS"]) == ("2", "true")


def test_a_queue_on_sqs_has_the_name_that_celery_gives_it():
    from kombu.transport.SQS import Channel

    class Named(Channel):
        queue_name_prefix = "shop-"

        def __init__(self):
            pass

    values = values_of("keda-sqs-irsa")
    queues = [*values["pools"][0]["queues"], "a b:c/d~e", "plus+one.fifo"]
    values["pools"][0]["queues"] = [queue for queue in queues if " " not in queue]
    urls = [one["metadata"]["queueURL"] for one in triggers(render(values))]
    named = [Named().canonical_queue_name(queue) for queue in values["pools"][0]["queues"]]
    assert urls == [f"https://sqs.eu-west-1.amazonaws.com/123456789012/{name}" for name in named]


def test_letters_on_kafka_are_measured_where_the_analysis_reads_them():
    from angzarr.dead_letters import names

    found = triggers(rendered("keda-kafka"), "dlq-analysis")
    assert [one["metadata"]["topic"] for one in found] == [
        "angzarr-dlq-order",
        "angzarr-dlq-billing",
    ]
    assert {one["metadata"]["consumerGroup"] for one in found} == {"shop-letters"}
    plain = render(changed(values_of("keda-kafka"), config__dlq__kafka_group=None))
    groups = {one["metadata"]["consumerGroup"] for one in triggers(plain, "dlq-analysis")}
    assert groups == {names.ANALYSIS_GROUP}
    assert {one["metadata"]["offsetResetPolicy"] for one in found} == {"earliest"}


def test_letters_of_a_domain_with_dots_are_in_the_queue_of_that_name():
    from angzarr.dead_letters import names

    found = triggers(rendered("keda-rabbitmq"), "dlq-analysis")
    assert [one["metadata"]["queueName"] for one in found] == [
        "angzarr-dlq-order",
        "angzarr-dlq-poker-table",
    ]
    assert names.NAME_PREFIX == "angzarr-dlq-"


# -- how it is measured --------------------------------------------------------------------------


@pytest.mark.parametrize("name", [one for one in SETS if one.startswith("keda-")])
def test_all_that_waits_adds_up(name):
    """By itself KEDA takes the largest of its triggers, and one queue of many would count."""
    chart = rendered(name)
    for one in chart.all("ScaledObject"):
        formula, names = total(chart, one["metadata"]["name"])
        assert " + ".join(each for each in names if each.startswith("q")) in formula
        assert set(re.findall(r"[a-z]\w*(?![\w(])", formula)) == set(names)
        assert len(set(names)) == len(names)
        assert all(re.fullmatch(r"[a-z][A-Za-z0-9_]*", each) for each in names)  # expr's names


def test_a_trigger_of_ones_own_counts_as_its_formula_says():
    formula, _ = total(rendered("keda-redis"))
    assert formula == "max((q0_0 + q0_3 + q0_6 + q0_9), morning * 20)"


@pytest.mark.parametrize("name", SETS)
def test_what_is_scaled_says_no_number_of_pods(name):
    chart = rendered(name)
    scalers = chart.all("ScaledObject") + chart.all("HorizontalPodAutoscaler")
    scaled = {
        (one["spec"]["scaleTargetRef"]["kind"], one["spec"]["scaleTargetRef"]["name"])
        for one in scalers
    }
    assert len(scaled) == len(scalers)
    makers = {(one["kind"], one["metadata"]["name"]): one for one in chart.workloads()}
    assert scaled <= set(makers)
    for key, maker in makers.items():
        assert ("replicas" in maker["spec"]) == (key not in scaled)


def test_a_pool_keeps_its_size_while_the_broker_does_not_answer():
    spec = rendered("keda-redis").one("ScaledObject", "worker-default")["spec"]
    assert spec["fallback"] == {
        "failureThreshold": 3,
        "replicas": 6,
        "behavior": "currentReplicasIfHigher",
    }
    other = rendered("keda-redis-sentinel").one("ScaledObject", "worker-bulk")["spec"]
    assert other["fallback"]["replicas"] == 2


def test_a_pool_may_have_no_pods_where_another_sends_what_is_delayed():
    spec = rendered("keda-redis-sentinel").one("ScaledObject", "worker-bulk")["spec"]
    assert spec["minReplicaCount"] == 0
    assert spec["advanced"]["scalingModifiers"]["activationTarget"] == "5"


def test_the_larger_targets_are_written_as_whole_numbers():
    pools = [{"name": "default", "queues": ["celery"], "maxTasksPerChild": 1000000,
              "autoscaling": {"kind": "keda", "messagesPerReplica": 100000}}]  # fmt: skip
    chart = render(changed(values_of("keda-redis"), pools=pools))
    assert triggers(chart)[0]["metadata"]["listLength"] == "100000"
    (worker,) = chart.one("Deployment", "worker-default")["spec"]["template"]["spec"]["containers"]
    assert worker["args"][-1] == "1000000"


def test_an_hpa_looks_at_what_is_said():
    spec = rendered("hpa").one("HorizontalPodAutoscaler", "worker-default")["spec"]
    targets = {
        one["resource"]["name"]: one["resource"]["target"]["averageUtilization"]
        for one in spec["metrics"]
    }
    assert targets == {"cpu": 70, "memory": 80}
    assert spec["minReplicas"] == 2


# -- how it gets in ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [one for one in SETS if one.startswith("keda-")])
def test_an_authentication_that_is_named_is_there(name):
    chart = rendered(name)
    made = {one["metadata"]["name"] for one in chart.all("TriggerAuthentication")}
    used = {
        one["authenticationRef"]["name"]
        for found in chart.all("ScaledObject")
        for one in found["spec"]["triggers"]
        if "authenticationRef" in one
    }
    assert used == made


def test_rabbitmq_is_reached_by_the_brokers_own_secret():
    found = rendered("keda-rabbitmq").one("TriggerAuthentication")["spec"]
    assert found["secretTargetRef"] == [{"parameter": "host", "name": "orders", "key": "broker"}]


LETTERS = {"name": "orders", "key": "letters"}


@pytest.mark.parametrize(
    ("name", "changes", "host"),
    [
        # Letters on a RabbitMQ of their own, beside a broker that is another, or none.
        ("keda-rabbitmq", {"secretEnv__ANGZARR_DLQ__AMQP_URL": LETTERS}, LETTERS),
        ("keda-redis", {}, LETTERS),
        ("keda-redis", {"keda__rabbitmq__hostSecret": {"name": "k", "key": "host"}},
         {"name": "k", "key": "host"}),
        ("keda-rabbitmq", {}, {"name": "orders", "key": "broker"}),
    ],
)  # fmt: skip
def test_letters_on_rabbitmq_are_measured_on_the_server_where_they_are(name, changes, host):
    values = changed(
        values_of(name),
        analysis={"autoscaling": {"kind": "keda", "source": "rabbitmq", "domains": ["order"]}},
        **{key: value for key, value in changes.items() if not key.startswith("secretEnv")},
    )
    for key in [one for one in changes if one.startswith("secretEnv")]:
        values["secretEnv"][key.removeprefix("secretEnv__")] = changes[key]
    chart = render(values)
    (one,) = triggers(chart, "dlq-analysis")
    logins = {each["metadata"]["name"]: each for each in chart.all("TriggerAuthentication")}
    (ref,) = logins[one["authenticationRef"]["name"]]["spec"]["secretTargetRef"]
    assert ref == {"parameter": "host"} | host
    pools = triggers(chart)
    assert all(each.get("authenticationRef") != one["authenticationRef"] for each in pools) == (
        host != {"name": "orders", "key": "broker"}
    )


@pytest.mark.parametrize(
    ("name", "changes", "remedy"),
    [
        ("keda-kafka", {"analysis__autoscaling__source": "rabbitmq"},
         " or keda.rabbitmq.hostSecret"),
        ("keda-rabbitmq", {"config__dlq": {"amqp_url": "amqp://letters:5672"}}, ""),
    ],
)  # fmt: skip
def test_the_brokers_address_is_not_taken_for_that_of_the_letters(name, changes, remedy):
    assert refusal(name, **changes).endswith(f"set secretEnv.ANGZARR_DLQ__AMQP_URL{remedy}")


def test_on_aws_the_pods_role_is_used():
    found = rendered("keda-sqs-irsa").one("TriggerAuthentication")["spec"]
    assert found == {"podIdentity": {"provider": "aws", "identityOwner": "workload"}}


def test_kafkas_password_and_authorities_come_from_secrets():
    found = rendered("keda-kafka").one("TriggerAuthentication")["spec"]["secretTargetRef"]
    assert {one["parameter"]: one["name"] for one in found} == {
        "username": "kafka",
        "password": "kafka",
        "ca": "kafka",
    }


@pytest.mark.parametrize("role", ["dashboard", "beat"])
def test_what_is_not_scaled_cannot_be(role):
    with pytest.raises(Refused, match=f"/{role}"):
        render(changed(values_of("network-policy"), **{f"{role}__autoscaling": {"kind": "hpa"}}))
