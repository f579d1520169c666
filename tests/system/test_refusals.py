"""What is refused at start is refused by a real worker: exit code 1, one sentence, no traceback."""

from __future__ import annotations

import os
from contextlib import contextmanager

import pytest

import warm_process
from endurance import soak
from redis_servers import PrivateRedis, wait_until

#: Seconds that a worker may take to refuse.
PATIENCE = 60
NOBODY = "redis://127.0.0.1:1/0"

APP = """
from angzarr import Angzarr

app = Angzarr("refused", **{options!r})
app.conf.update({conf!r})

@app.task(name="plain", **{task!r})
def plain():
    pass

if {asynchronous!r}:
    @app.handler("placed", name="coroutine")
    async def coroutine(event):
        pass
"""

MEMORY = {"broker": "memory://", "store": "memory://"}
AMQP = {"broker": "amqp://guest:guest@127.0.0.1:1//", "store": NOBODY}
REDIS = {"broker": NOBODY, "store": NOBODY, "dlq": {"backend": "sqs"}}


def refuse(folder, *arguments, **app):
    """Start a worker of an app like this and return what it said when it had ended with 1."""
    with begun(folder, *arguments, **app) as worker:
        return ended(worker, folder)


@contextmanager
def begun(folder, *arguments, options=MEMORY, conf=None, task=None, asynchronous=False):
    text = APP.format(options=options, conf=conf or {}, task=task or {}, asynchronous=asynchronous)
    (folder / "refused.py").write_text(text)
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    (folder / "log").touch()
    worker = warm_process.begin(
        ["celery", "-A", "refused", "worker", *arguments],
        folder=folder,
        environment={**os.environ, "PYTHONPATH": path},
        log=folder / "log",
    )
    try:
        yield worker
    finally:
        worker.kill()
        worker.wait()


def ended(worker, folder):
    code = worker.wait(PATIENCE)
    said = (folder / "log").read_text()
    assert code == 1, said
    assert "Traceback" not in said
    assert " ready." not in said
    return said


@pytest.mark.parametrize(
    ("pool", "option"),
    [
        ("threads", "--time-limit"),
        soak("threads", "--soft-time-limit"),
        soak("solo", "--time-limit"),
        soak("gevent", "--time-limit"),
    ],
)
def test_a_time_limit_on_the_command_line_is_refused_by_a_worker(tmp_path, pool, option):
    said = refuse(tmp_path, "-P", pool, option, "5")
    assert "Error: angzarr refuses to start: all tasks have a time limit (--time-limit" in said
    cure = "use `angzarr worker` or prefork, or remove the limit"
    assert f"which the {pool} pool ignores: {cure}" in said


@pytest.mark.soak
@pytest.mark.parametrize("pool", ["threads", "solo", "gevent"])
@pytest.mark.parametrize("limited", [{"task": {"time_limit": 5}}, {"task": {"soft_time_limit": 5}}])
def test_a_time_limit_of_a_task_is_refused_by_a_worker(tmp_path, pool, limited):
    said = refuse(tmp_path, "-P", pool, **limited)
    assert f"task plain has a time limit, which the {pool} pool ignores" in said


@pytest.mark.soak
def test_a_time_limit_in_the_settings_is_refused_by_a_worker(tmp_path):
    said = refuse(tmp_path, "-P", "threads", conf={"task_time_limit": 5})
    assert "all tasks have a time limit" in said


@pytest.mark.soak
def test_an_async_handler_is_refused_by_a_worker_with_greenlets(tmp_path):
    said = refuse(tmp_path, "-P", "gevent", asynchronous=True)
    assert "task coroutine is async, which the gevent pool cannot run: use prefork or" in said


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({**REDIS, "store": "memory://"}, "a memory store is not shared by workers"),
        soak({**AMQP, "store": "memory://"}, "a memory store is not shared by workers"),
        soak({**REDIS, "store": "sqlite:///claims.db"}, "SQLite keeps claims for one host only"),
        soak({**AMQP, "store": "sqlite:///claims.db"}, "SQLite keeps claims for one host only"),
        soak({**AMQP, "dlq": {"backend": "channel"}}, "'channel' dies with its process"),
        soak({**AMQP, "store": None}, "keeps no claims: set store to a Redis or PostgreSQL"),
        soak({**REDIS, "dlq": None}, "a redis broker keeps no dead letters: set dlq.backend"),
        soak(MEMORY, "a memory broker lives in one process: use the threads or solo pool"),
    ],
)
def test_what_is_not_shared_by_all_workers_is_refused_by_a_worker(tmp_path, options, sentence):
    assert sentence in refuse(tmp_path, "-P", "prefork", options=options)


@pytest.mark.parametrize(
    ("options", "conf", "sentence"),
    [
        (MEMORY, {"task_acks_late": False}, "task_acks_late is False: set it to True"),
        soak(MEMORY, {"accept_content": ["json", "yaml"]}, "accept_content takes yaml: set it to"),
        soak(
            AMQP,
            {"broker_transport_options": {"confirm_publish": False}},
            "set {'confirm_publish': True}",
        ),
        soak(
            AMQP,
            {"broker_native_delayed_delivery_queue_type": "classic"},
            "broker_native_delayed_delivery_queue_type is 'classic', a delay could vanish",
        ),
    ],
)
def test_a_setting_that_would_lose_messages_is_refused_by_a_worker(
    tmp_path, options, conf, sentence
):
    said = refuse(tmp_path, "-P", "solo", options=options, conf=conf)
    assert "angzarr refuses to start, messages would be lost: " in said
    assert sentence in said


# -- a Redis that deletes keys when it is full -------------------------------------------------

EVICTING = {"maxmemory": "32mb", "maxmemory-policy": "volatile-lru"}
DELETES = "deletes keys when its memory is full (maxmemory 33554432, maxmemory-policy volatile-lru)"


@pytest.mark.parametrize("use", ["broker", soak("store")])
def test_a_redis_that_evicts_is_refused_by_a_worker(tmp_path, use):
    with PrivateRedis(tmp_path / "redis", options=EVICTING) as server:
        options = {**REDIS, "broker": server.url, "store": server.url}
        if use == "store":
            options |= {"broker": AMQP["broker"]}
        said = refuse(tmp_path, "-P", "threads", options=options)
    assert "Error: angzarr refuses to start, messages would be lost: Redis at " in said
    assert DELETES in said
    assert "set maxmemory-policy noeviction on that server" in said


def test_a_redis_that_evicts_and_was_away_is_refused_by_a_worker_once_it_is_there(tmp_path):
    with PrivateRedis(tmp_path / "redis", options=EVICTING) as server:
        server.stop()
        options = {**AMQP, "store": server.url}
        with begun(tmp_path, "-P", "solo", options=options) as worker:
            log = tmp_path / "log"
            wait_until(lambda: "owner_lease_not_renewed" in log.read_text(), "its wait")
            assert worker.poll() is None
            server.start()
            said = ended(worker, tmp_path)
    assert DELETES in said
