"""Tasks that were revoked: none runs, and each is a letter."""

from __future__ import annotations

import uuid
from types import SimpleNamespace

import pytest
from celery.utils.collections import LimitedSet
from celery.worker.state import Persistent

from endurance import each_once, soak
from polling import wait_until

POOLS = ["prefork", "threads", "solo"]


def told(site, revoke, what):
    """Have a worker know of a revocation; it may not have begun to listen."""
    wait_until(lambda: revoke(what, reply=True, timeout=2, limit=1), "the revocation")


@pytest.mark.parametrize(
    ("site", "pool"), each_once(["redis", "amqp", "classic"], POOLS), indirect=["site"]
)
def test_a_task_revoked_by_id_or_by_stamp_is_a_letter_and_does_not_run(site, pool):
    by_id, batch = str(uuid.uuid4()), str(uuid.uuid4())
    with site.worker(pool=pool, ROAD_ASYNC="0"):
        told(site, site.app.control.revoke, by_id)
        told(site, site.app.control.revoke_by_stamped_headers, {"batch": [batch]})
        one = site.module.add.apply_async((1, 1), task_id=by_id)
        stamped = site.module.add.s(2, 2)
        stamped.stamp(batch=batch)
        other = stamped.apply_async()
        site.module.add.delay(3, 3)
        site.wait_ran("add")
        letters = site.letters("unknown", 2)
        wait_until(lambda: one.state == other.state == "REVOKED", "the results to be told")
    assert {(letter.reason, letter.message.id, letter.attempts) for letter in letters} == {
        ("revoked", by_id, 0), ("revoked", other.id, 0),
    }  # fmt: skip
    assert [line["args"] for line in site.ran("add")] == [[3, 3]]


@pytest.mark.parametrize("site", ["redis", "amqp", "classic"], indirect=True)
def test_a_task_revoked_while_it_runs_is_killed_and_a_letter(site):
    with site.worker(ROAD_ASYNC="0"):
        sent = site.app.send_task("road_app.long", (30,))
        site.wait_ran("long")
        site.app.control.revoke(sent.id, terminate=True, signal="SIGKILL")
        (letter,) = site.letters("unknown")
        site.module.add.delay(1, 1)
        site.wait_ran("add")
    assert (letter.reason, letter.message.id) == ("revoked", sent.id)
    assert len(site.ran("long")) == 1
    assert site.ran("long done") == []


@pytest.mark.parametrize(
    ("pool", "told_so"), [("threads", "error"), ("solo", "terminate: tasks unknown")]
)
def test_a_task_that_runs_in_no_process_of_its_own_is_not_killed_by_a_revocation(
    site, pool, told_so
):
    """Celery cannot end a thread, and a solo worker hears of it when the task has ended."""
    with site.worker(pool=pool, ROAD_ASYNC="0") as worker:
        sent = site.app.send_task("road_app.long", (1.5,))
        site.wait_ran("long")
        (answer,) = site.app.control.revoke(
            sent.id, terminate=True, reply=True, timeout=60, limit=1
        )
        site.wait_ran("long done")
        wait_until(lambda: sent.state == "SUCCESS", "the result to be told")
        assert worker.poll() is None
    assert told_so in str(answer)
    assert len(site.ran("long")) == 1


@pytest.mark.parametrize("pool", [POOLS[0], *map(soak, POOLS[1:])])
@pytest.mark.parametrize("site", ["sqs"], indirect=True)
def test_on_sqs_what_a_worker_is_told_at_start_is_revoked_and_nothing_else(site, pool, tmp_path):
    """SQS carries no remote control: a revocation by it reaches nobody, and the task runs."""
    by_file, by_control = str(uuid.uuid4()), str(uuid.uuid4())
    remembered = SimpleNamespace(revoked=LimitedSet(), merge_revoked=lambda _: None)
    remembered.revoked.add(by_file)
    Persistent(remembered, str(tmp_path / "state")).save()
    with site.worker("--statedb", str(tmp_path / "state"), pool=pool, ROAD_ASYNC="0"):
        site.app.control.revoke(by_control)
        site.module.add.apply_async((1, 1), task_id=by_file)
        site.module.add.apply_async((2, 2), task_id=by_control)
        site.wait_ran("add")
        (letter,) = site.letters("unknown")
    assert (letter.reason, letter.message.id) == ("revoked", by_file)
    assert [line["args"] for line in site.ran("add")] == [[2, 2]]
