"""A real worker on its fleet's register, as a person sees it."""

from __future__ import annotations

import json
import os
import signal

import pytest

import warm_process
from polling import wait_until
from system.conftest import HERE, PATH

#: Seconds within which the lease of a killed worker has ended, and is seen to have.
GONE = 8 + 7


@pytest.fixture
def site(make_site, redis_url):
    return make_site(broker=redis_url, store=redis_url)


def told(site, *arguments):
    """Run the command as a person does, in a process of its own; return what it told."""
    command = ["angzarr", "-A", "road_app", "fleet", *arguments, "--json"]
    environment = {**os.environ, **site.environment, "PYTHONPATH": PATH}
    done = warm_process.run(command, folder=HERE, environment=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_worker_is_told_with_its_release_and_is_gone_once_it_was_killed(site):
    queue = f"{site.module.PREFIX}-other"
    with site.worker(
        "-Q", queue, pool="threads", ANGZARR_RELEASE="2026.11", ROAD_LEASE="1"
    ) as process:
        (found,) = wait_until(lambda: told(site, "list"), "the worker to be a member")
        assert (found["pid"], found["release"]) == (process.pid, "2026.11")
        assert (found["queues"], found["pool"]) == ([queue], "threads")
        assert {"road_app.routed", "road_app.take"} <= set(found["handlers"])
        assert [one for one in found["handlers"] if one.startswith("celery.")] == []
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)
        wait_until(lambda: not list(site.app.ops.fleet().members()), "its lease to end")
    (release,) = told(site, "releases")
    assert (release["name"], release["workers"]) == ("2026.11", 0)
