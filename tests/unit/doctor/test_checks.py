"""Every check finds what it is for, and nothing where that is not."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from angzarr.doctor import (
    celery_rules,
    database_rules,
    encryption_rules,
    finding,
    fleet_rules,
    letter_rules,
    payload_rules,
    rabbitmq_rules,
    redis_rules,
    refusal_rules,
    sqs_rules,
)
from angzarr.doctor.finding import Severity, Unsafe
from angzarr.doctor.report import CHECKS, IDS, misspelt
from angzarr.fleet import Member
from angzarr.maintenance.schema_versions import Revision


def seconds(number):
    return timedelta(seconds=number)


# -- what is well ------------------------------------------------------------------------------

APP = celery_rules.CelerySeen(at="app shop", transport="redis")
STOCK = refusal_rules.StockSeen(
    at="app shop",
    transport="redis",
    dead_letter_exchange=True,
    native_delays=True,
    soft_shutdown=7.5,
)
TIMES = celery_rules.TimesSeen(
    at="app shop",
    visibility=seconds(3600),
    consumer_timeout=seconds(1800),
    longest_run=seconds(60),
    longest_delay=seconds(60),
    soft_shutdown=seconds(7.5),
    grace=seconds(30),
)
REDIS = redis_rules.RedisSeen(
    at="Redis at r:6379",
    version="7.2.4",
    role="master",
    cluster=False,
    maxmemory=100,
    policy="noeviction",
    used=10,
    append_only=True,
    fsync="always",
    save="",
    snapshots_work=True,
    appends_work=True,
    replicas=1,
    min_replicas=1,
    skew=seconds(0.2),
)
QUEUE = rabbitmq_rules.QueueSeen(
    name="shop", kind="quorum", messages=3, consumers=1, members=3, online=3
)
RABBIT = rabbitmq_rules.RabbitSeen(
    at="RabbitMQ at m:5672",
    queues=[QUEUE],
    delays=rabbitmq_rules.DelaysSeen(used=True, messages=4, bound=1),
    alarms={"rabbit@m": []},
    nodes=3,
)
SQS = sqs_rules.SqsQueueSeen(
    at="SQS",
    name="shop",
    made_with={"VisibilityTimeout": "1800"},
    retention=timedelta(days=14),
    visibility=seconds(1800),
    wanted_visibility=seconds(1800),
)
LETTER = letter_rules.LetterQueueSeen(
    domain="order", name="angzarr-dlq-order", waiting=2, readers=1
)
NO_TOPIC = replace(LETTER, lacks="the SNS topic of its name does not exist")
LETTERS = letter_rules.LettersSeen(at="RabbitMQ at m:5672", backend="amqp", queues=[LETTER])
SPOOL = letter_rules.SpoolSeen(at="spool at /var", file_system="ext4", free=100, most=50)
BODIES = payload_rules.BodiesSeen(at="app a")
ENCRYPTION = encryption_rules.EncryptionSeen(
    at="app shop", letters=True, bodies="all", has_store=True
)
PAYLOADS = letter_rules.PayloadsSeen(at="payloads at s3://b/", file_system="nfs4")
DATABASE = database_rules.DatabaseSeen(
    at="PostgreSQL at p/angzarr",
    settings={
        "synchronous_commit": "on",
        "fsync": "on",
        "full_page_writes": "on",
        "max_connections": "100",
    },
    used=10,
    wanted=60,
    skew=seconds(-0.3),
    tables=[database_rules.TablesSeen(schema="ledger", revision=Revision("0014", "0014"))],
)
MEMBER = Member(
    owner="a",
    host="web-1",
    pid=7,
    release="v1",
    handlers=("shop.mail",),
    queues=("shop",),
    started_at=datetime.now(UTC),
)
FLEET = fleet_rules.FleetSeen(
    at="fleet", members=[MEMBER], handlers={"shop.mail": "shop"}, waiting={"shop": 5}
)


def celery(**seen):
    app = replace(APP, **seen)
    return [*refusal_rules.findings(app), *celery_rules.findings(app)]


def refused(setting, problem="it is so", cure="set it to True", task="", **seen):
    return celery(unsafe=[Unsafe(setting, problem, cure, task)], **seen)


def stock(**seen):
    return list(refusal_rules.stock_findings(replace(STOCK, **seen)))


def times(**seen):
    return list(celery_rules.time_findings(replace(TIMES, **seen)))


def redis(**seen):
    return list(redis_rules.findings(replace(REDIS, **seen)))


def rabbit(**seen):
    return list(rabbitmq_rules.findings(replace(RABBIT, **seen)))


def queue(**seen):
    return rabbit(queues=[replace(QUEUE, **seen)])


def delays(**seen):
    return rabbit(delays=replace(RABBIT.delays, **seen))


def sqs(**seen):
    return list(sqs_rules.findings([replace(SQS, **seen)]))


def letters(**seen):
    return list(letter_rules.findings(replace(LETTERS, **seen)))


def letter(**seen):
    return letters(queues=[replace(LETTER, **seen)])


def spool(**seen):
    return list(letter_rules.spool_findings(replace(SPOOL, **seen)))


def encrypted(**seen):
    return list(encryption_rules.encryption_findings(replace(ENCRYPTION, **seen)))


def bodies(**seen):
    return list(payload_rules.body_findings(replace(BODIES, **seen)))


def payloads(**seen):
    return list(letter_rules.payload_findings(replace(PAYLOADS, **seen)))


def database(**seen):
    return list(database_rules.findings(replace(DATABASE, **seen)))


def setting(**given):
    return database(settings={**DATABASE.settings, **given})


def tables(found, *, migrates=True):
    seen = database_rules.TablesSeen(
        schema="ledger", revision=Revision(found, "0014"), migrates=migrates
    )
    return database(tables=[seen])


def fleet(**seen):
    return list(fleet_rules.findings(replace(FLEET, **seen)))


CRITICAL, ERROR, WARNING, INFO = Severity

#: Check → what is found where it is as bad as it gets, and how bad that is; then milder cases.
BAD = [
    ("server-away", [finding.away("x", "refused")], ERROR),
    ("look-failed", [finding.look_failed("x", "builtins.KeyError")], ERROR),
    ("settings-refused", [finding.refused("x", "no store")], ERROR),
    ("clock-skew", redis(skew=seconds(5)), ERROR),
    ("clock-skew", redis(skew=seconds(-2)), WARNING),
    ("clock-skew", database(skew=seconds(1.5)), WARNING),
    ("acks-early", refused("task_acks_late"), CRITICAL),
    ("acks-early", refused("acks_late", task="shop.mail"), CRITICAL),
    ("lost-child-acked", refused("task_reject_on_worker_lost"), CRITICAL),
    ("lost-child-acked", refused("reject_on_worker_lost", task="shop.mail"), CRITICAL),
    ("timeout-acked", refused("task_acks_on_timeout"), CRITICAL),
    ("timeout-acked", refused("task_acks_on_timeout", time_limited=False), WARNING),
    ("failure-rejected", refused("task_acks_on_failure"), CRITICAL),
    ("unsafe-serializer", refused("accept_content"), CRITICAL),
    ("unsafe-serializer", refused("task_serializer"), CRITICAL),
    ("unsafe-serializer", refused("result_serializer"), CRITICAL),
    ("unconfirmed-publishes", refused("broker_transport_options"), CRITICAL),
    ("delay-unconfirmed", refused("broker_native_delayed_delivery_queue_type"), CRITICAL),
    ("unreadable-dropped", refused("worker_consumer"), CRITICAL),
    ("kafka-broker", refused("broker_url"), CRITICAL),
    ("eager-tasks", refused("task_always_eager"), CRITICAL),
    ("task-off-road", refused("road", task="shop.mail"), CRITICAL),
    ("transient-messages", refused("task_default_delivery_mode"), CRITICAL),
    ("transient-messages", refused("delivery_mode", task="shop.mail"), CRITICAL),
    ("embedded-broker", celery(transport="memory"), CRITICAL),
    ("kombu-redis-transport", celery(kombus_redis=True), CRITICAL),
    ("prefetch", celery(prefetch=4), WARNING),
    ("prefetch", celery(prefetch=0), WARNING),
    ("broker-given-up", celery(connection_tries=100), WARNING),
    ("old-protocol", celery(protocol=1), WARNING),
    ("result-backend-wait", celery(result_backend="redis", result_wait=120.0), WARNING),
    ("result-backend-wait", celery(result_backend="redis", result_wait=None), WARNING),
    ("result-backend-rpc", celery(result_backend="rpc"), WARNING),
    ("classic-by-default", celery(transport="amqp", classic=["celery"]), WARNING),
    ("transient-control-queues", celery(transport="amqp", transient=["event"]), WARNING),
    ("no-dead-letters", stock(dead_letter_exchange=False), CRITICAL),
    ("retry-drops", stock(retrying=["shop.pay"]), CRITICAL),
    ("poison-loops", stock(reject_on_worker_lost=True), WARNING),
    ("runs-twice", stock(acks_late=True), WARNING),
    ("delays-in-memory", stock(native_delays=False), WARNING),
    ("no-soft-shutdown", stock(soft_shutdown=0.0), WARNING),
    ("unroutable-dropped", stock(transport="amqp"), WARNING),
    ("visibility-timeout", times(longest_delay=seconds(7200), consumer_timeout=None), ERROR),
    ("visibility-timeout", times(longest_run=seconds(3600), consumer_timeout=None), ERROR),
    ("visibility-timeout", times(longest_run=None, consumer_timeout=None), WARNING),
    ("consumer-timeout", times(longest_delay=seconds(1800)), ERROR),
    ("consumer-timeout", times(longest_run=seconds(2400)), ERROR),
    ("grace-period", times(grace=seconds(10)), ERROR),
    ("grace-beyond-visibility", times(grace=seconds(3600)), ERROR),
    ("redis-evicts", redis(policy="allkeys-lru"), CRITICAL),
    ("redis-evicts", redis(policy="volatile-ttl", roles=["results"]), WARNING),
    ("redis-would-evict", redis(policy="allkeys-lru", maxmemory=0), WARNING),
    ("redis-not-persistent", redis(append_only=False, save=""), CRITICAL),
    ("redis-not-persistent", redis(append_only=False, save="3600 1"), CRITICAL),
    ("redis-not-persistent", redis(append_only=False, save=None), WARNING),
    ("redis-not-persistent", redis(append_only=False, roles=["flow store"]), WARNING),
    ("redis-fsync", redis(fsync="everysec"), INFO),
    ("redis-fsync", redis(fsync="no"), WARNING),
    ("redis-disk-fails", redis(snapshots_work=False), CRITICAL),
    ("redis-disk-fails", redis(appends_work=False), CRITICAL),
    ("redis-full", redis(used=96), ERROR),
    ("redis-full", redis(used=80), WARNING),
    ("redis-unfit", redis(version="6.2.14"), ERROR),
    ("redis-unfit", redis(cluster=True), ERROR),
    ("redis-replica", redis(role="slave"), ERROR),
    ("redis-failover", redis(replicas=1, min_replicas=0), WARNING),
    (
        "redis-delays-beyond-visibility",
        list(redis_rules.findings(redis_rules.with_held(REDIS, seconds(3600), 2))),
        ERROR,
    ),
    ("queue-missing", queue(exists=False), WARNING),
    ("queue-missing", sqs(exists=False), WARNING),
    ("queue-differs", queue(differs="inequivalent arg 'x-queue-type'"), ERROR),
    ("exchange-type", queue(exchange="inequivalent arg 'type'"), ERROR),
    ("queue-not-durable", queue(differs="inequivalent arg 'durable'", fleeting=True), CRITICAL),
    ("queue-drops", queue(drops=["x-message-ttl=5 (leave it out)"]), CRITICAL),
    ("queue-classic", queue(kind="classic"), CRITICAL),
    ("queue-classic", queue(kind="classic", mirrored=True), WARNING),
    ("queue-unread", queue(consumers=0), WARNING),
    ("queue-unread", fleet(waiting={"bulk": 5}), WARNING),
    ("rabbitmq-alarm", rabbit(alarms={"rabbit@m": ["memory"]}), ERROR),
    ("quorum-degraded", queue(online=2), WARNING),
    ("quorum-degraded", queue(online=1), ERROR),
    ("delay-queues-missing", delays(missing=["celery_delayed_0"]), ERROR),
    ("delay-queues-weak", delays(weak="inequivalent arg 'x-queue-type'"), CRITICAL),
    ("delay-queues-orphaned", delays(bound=0), CRITICAL),
    ("sqs-retention", sqs(retention=timedelta(days=1)), WARNING),
    ("sqs-retention", sqs(retention=timedelta(days=4)), INFO),
    ("sqs-redrive", sqs(moving="moved to x"), WARNING),
    ("sqs-rejects-delete", sqs(ours=False), CRITICAL),
    ("sqs-visibility", sqs(visibility=seconds(30)), ERROR),
    ("letters-discarded", letters(backend="none", queues=[]), CRITICAL),
    ("letters-discarded", letters(backend="channel", queues=[]), CRITICAL),
    ("dead-letter-queue-missing", letter(exists=False), WARNING),
    ("dead-letter-queue-missing", letter(exists=False, made_when_missing=False), ERROR),
    ("dead-letter-queue-missing", letters(backend="sns_sqs", queues=[NO_TOPIC]), WARNING),
    ("dead-letter-topic-unlike", letter(topic=["no raw delivery (set it)"]), WARNING),
    ("dead-letter-queue-loses", letter(weak=["x-message-ttl=5"]), CRITICAL),
    ("dead-letter-queue-loses", letter(weak=["one replica"], mild=True), WARNING),
    ("dead-letter-queue-loses", letter(weak=["a letter is moved to x"]), WARNING),
    ("dead-letter-queue-unfit", letter(unfit="it is detached"), ERROR),
    ("letters-unread", letter(read=False), WARNING),
    ("letters-of-any-app", letters(has_own_domain=False, queues=[]), WARNING),
    ("analysis-worker-missing", letter(readers=0), WARNING),
    ("no-ledger", [letter_rules.ledger("app shop")], WARNING),
    ("spool-not-durable", spool(file_system="overlay"), CRITICAL),
    ("spool-not-durable", spool(file_system="tmpfs"), CRITICAL),
    ("spool-without-room", spool(free=49), WARNING),
    ("spool-waiting", spool(waiting=1), WARNING),
    ("payload-store-missing", payloads(problem="there is none", cure="make it"), ERROR),
    ("payloads-deleted", payloads(deletes="a rule"), CRITICAL),
    ("payload-store-not-durable", payloads(file_system="overlay"), CRITICAL),
    (
        "payload-threshold-too-high",
        list(letter_rules.threshold_findings("payloads.over", 9, 8)),
        ERROR,
    ),
    ("bodies-not-encrypted", encrypted(bodies="none"), WARNING),
    ("encryption-without-effect", encrypted(bodies="stored", has_store=False), WARNING),
    ("tasks-not-encryptable", encrypted(serializer="yaml"), ERROR),
    ("tasks-not-encryptable", encrypted(protocol=1), ERROR),
    ("bodies-not-registered", bodies(has_claims=False), WARNING),
    ("bodies-without-keeper", bodies(has_ledger=False), WARNING),
    ("bodies-not-deleted", bodies(late=3, late_for=timedelta(days=3)), WARNING),
    ("bodies-held-long", bodies(held_long=1000, more=True), WARNING),
    ("postgresql-synchronous-commit", setting(synchronous_commit="off"), CRITICAL),
    ("postgresql-fsync", setting(fsync="off"), CRITICAL),
    ("postgresql-fsync", setting(full_page_writes="off"), CRITICAL),
    ("postgresql-connections", database(used=80), WARNING),
    ("postgresql-connections", database(wanted=101), INFO),
    ("tables-behind", tables("0013"), WARNING),
    ("tables-behind", tables(""), INFO),
    ("tables-behind", tables("", migrates=False), ERROR),
    ("tables-newer", tables("0015"), ERROR),
    ("books-and-order-apart", [database_rules.apart("app shop", "a", "b")], WARNING),
    ("database-of-one-host", database(kind="sqlite"), WARNING),
    ("no-workers", fleet(members=[]), WARNING),
    ("release-skew", fleet(members=[MEMBER, replace(MEMBER, release="v2")]), WARNING),
    ("release-unnamed", fleet(members=[replace(MEMBER, release="")]), INFO),
    ("handler-nowhere", fleet(handlers={"shop.mail": "shop", "shop.new": "shop"}), WARNING),
    ("handler-unknown", fleet(handlers={}, waiting={}), WARNING),
    ("facts-waiting", fleet(facts_wait=timedelta(minutes=3)), WARNING),
    ("acts-waiting", fleet(acts_wait=timedelta(minutes=3)), WARNING),
    ("facts-waiting", fleet(facts_wait=timedelta(minutes=3), members=[])[:1], WARNING),
    (
        "acts-unended",
        list(fleet_rules.unended(replace(FLEET, unended=["configuration_put of pricing"]))),
        WARNING,
    ),
    (
        "ordered-over-history",
        list(fleet_rules.over_history(replace(FLEET, over_history={"stock": 9}))),
        WARNING,
    ),
]
#: What nobody can tell: never an alarm.
UNTOLD = [
    ("redis-evicts", redis(policy=None)),
    ("redis-not-persistent", redis(append_only=None)),
    ("rabbitmq-alarm", rabbit(alarms=None)),
    ("payloads-deleted", payloads(deletes=None)),
    ("queue-drops", queue(limit_untold=True)),
    ("delay-queues-orphaned", delays(used=False, bound=None)),
    ("consumer-timeout", times(longest_run=None, visibility=None)),
    ("not-looked-at", [finding.not_looked_at("x", "no right to", "look")]),
]


@pytest.mark.parametrize(("check", "found", "severity"), BAD, ids=lambda value: str(value)[:40])
def test_what_is_wrong_is_found_alone_and_as_bad_as_it_is(check, found, severity):
    assert [(one.check.id, one.severity, one.known) for one in found] == [(check, severity, True)]


@pytest.mark.parametrize(("check", "found"), UNTOLD, ids=lambda value: str(value)[:40])
def test_what_cannot_be_told_is_unknown_and_says_what_to_look_at(check, found):
    assert [(one.check.id, one.severity, one.known) for one in found] == [(check, INFO, False)]
    assert all(one.change and one.fix is None for one in found)


@pytest.mark.parametrize(
    "well",
    [
        celery,
        stock,
        times,
        redis,
        rabbit,
        sqs,
        letters,
        spool,
        payloads,
        bodies,
        encrypted,
        database,
        fleet,
    ],
    ids=lambda well: well.__name__,
)
def test_nothing_is_found_where_all_is_well(well):
    assert well() == []


def test_nothing_is_found_where_nothing_applies():
    assert times(visibility=None, consumer_timeout=None, longest_run=None, grace=None) == []
    assert letters(backend="channel", embedded=True, queues=[]) == []
    assert letter(exists=True, waiting=0, readers=0) == []
    assert delays(used=False, missing=["celery_delayed_0"], messages=0) == []
    assert delays(used=False, weak="classic", messages=0) == []
    assert celery(result_backend="db+postgresql", result_wait=120.0) == []
    assert celery(transport="redis", transient=["event"]) == []
    assert redis(roles=["results"], version="6.0.1") == []
    assert sqs(ours=False, moving="moved to x") == []
    assert queue(kind=None, consumers=None) == []
    assert list(fleet_rules.over_history(FLEET)) == []
    assert list(fleet_rules.unended(FLEET)) == []
    assert fleet(facts_wait=timedelta(minutes=2)) == fleet()
    assert fleet(acts_wait=timedelta(minutes=2)) == fleet()


def test_every_check_has_a_case_that_finds_it():
    assert IDS - {check for check, *_ in (*BAD, *UNTOLD)} == set()


def test_there_are_enough_checks_and_their_ids_differ():
    assert len(CHECKS) == len(IDS) >= 25
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+|prefetch", one) for one in IDS)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_every_check_says_in_one_sentence_what_becomes_of_messages(check):
    assert check.looks_at
    assert 20 < len(check.why) < 160
    assert not check.why.endswith(".")
    assert ". " not in check.why


def test_a_fix_is_promised_by_the_checks_that_have_one_and_no_others():
    offered = {one.check.id for _, found, _ in BAD for one in found if one.fix is not None}
    assert offered == {check.id for check in CHECKS if check.fixable}


def test_no_fix_removes_anything():
    """A fix makes what is missing, or has Redis keep what it would lose; it deletes nothing."""
    fixes = [one.fix for _, found, _ in BAD for one in found if one.fix is not None]
    kinds = {fix.kind for fix in fixes}
    assert kinds == {
        redis_rules.CONFIG_SET,
        rabbitmq_rules.DECLARE_QUEUE,
        rabbitmq_rules.DECLARE_DELAYS,
        sqs_rules.CREATE_QUEUE,
        letter_rules.CREATE,
    }
    set_to = {fix.arguments for fix in fixes if fix.kind == redis_rules.CONFIG_SET}
    assert set_to == {("appendonly", "yes"), ("maxmemory-policy", "noeviction")}


def test_a_queue_of_a_topic_that_needs_more_than_itself_is_not_offered_to_be_made():
    (found,) = letters(backend="pubsub", queues=[replace(LETTER, exists=False)])
    assert found.fix is None


@pytest.mark.parametrize(
    ("hours", "change"),
    [(1, "'visibility_timeout': 7200}"), (8, "'visibility_timeout': 43200}"), (12, "shorter")],
)
def test_no_longer_visibility_timeout_is_asked_for_than_a_broker_has(hours, change):
    twelve, span = timedelta(hours=12), timedelta(hours=hours)
    given = {"most_visibility": twelve, "consumer_timeout": None}
    (found,) = times(longest_run=span, visibility=min(span, twelve), **given)
    assert change in found.change
    (found,) = times(longest_run=timedelta(hours=12), consumer_timeout=None)
    assert "86400" in found.change


def test_a_queue_that_the_app_never_makes_is_not_offered_to_be_made():
    (found,) = sqs(exists=False, made_with={})
    assert found.fix is None
    assert "predefined_queues" in found.change


@pytest.mark.parametrize("seen", [{"exists": False}, {"consumers": 0}])
def test_nobody_is_told_to_run_what_rabbitmq_gave_up_as_tasks(seen):
    (found,) = queue(of_all=True, **seen)
    assert "-Q" not in found.change
    (found,) = queue(**seen)
    assert found.change.endswith("worker -Q shop")


def test_a_cache_of_results_may_be_meant_to_evict_and_is_not_offered_to_be_changed():
    found = redis(policy="allkeys-lru", append_only=False, save="", roles=["results"])
    assert [(one.severity, one.fix) for one in found] == [(WARNING, None)] * 2


@pytest.mark.parametrize("told", ["snapshots_work", "appends_work"])
def test_a_disk_that_fails_is_told_by_the_field_that_says_so(told):
    (found,) = redis(**{"snapshots_work": None, "appends_work": None, told: False})
    assert (
        found.seen
        == {
            "snapshots_work": "err: rdb_last_bgsave_status",
            "appends_work": "err: aof_last_write_status",
        }[told]
    )


def test_many_tasks_with_one_fault_are_one_finding_that_names_some():
    unsafe = [
        Unsafe("acks_late", f"task t{n} has acks_late=False", "remove it", f"t{n}")
        for n in range(9)
    ]
    (found,) = celery(unsafe=unsafe)
    assert found.at == "app shop, tasks t0, t1, t2, t3, t4 and 4 more"
    assert found.change == "remove acks_late=False from the tasks' decorators"


def test_tasks_are_not_told_beside_the_setting_that_they_follow():
    whole = Unsafe("task_acks_late", "task_acks_late is False", "set it to True")
    own = Unsafe("acks_late", "task t has acks_late=False", "remove it", "t")
    (found,) = celery(unsafe=[whole, own])
    assert found.at == "app shop"
    assert found.change == "set task_acks_late = True"


def test_each_task_that_leaves_the_road_is_told_with_its_own_cure():
    unsafe = [Unsafe("road", f"task t{n} has its own {n}", f"move {n}", f"t{n}") for n in range(2)]
    found = [(one.at, one.seen, one.change) for one in celery(unsafe=unsafe)]
    assert found == [
        ("app shop, task t0", "task t0 has its own 0", "move 0"),
        ("app shop, task t1", "task t1 has its own 1", "move 1"),
    ]


def test_the_change_is_a_line_that_can_be_written():
    (found,) = celery(unsafe=[Unsafe("accept_content", "takes pickle", "set it to ['json']")])
    assert found.change == "set accept_content = ['json']"
    (found,) = celery(
        unsafe=[Unsafe("broker_transport_options", "lacks it", "set {'confirm_publish': True}")]
    )
    assert found.change == "set broker_transport_options = {'confirm_publish': True}"


def test_what_is_only_for_tests_is_told_to_be_off():
    (found,) = refused("task_always_eager", cure="it is for tests")
    assert found.change == "set task_always_eager = False: it is for tests"


def test_an_app_that_is_not_ours_is_not_told_to_derive_a_consumer_from_ours():
    unsafe = [Unsafe("worker_consumer", "it is Celery's", "derive it from …")]
    (found,) = celery(unsafe=unsafe, ours=False)
    assert "angzarr.Angzarr" in found.change


def test_a_misspelt_id_is_told():
    assert misspelt(["acks-early", "acks-erly", "x"]) == ["acks-erly", "x"]
