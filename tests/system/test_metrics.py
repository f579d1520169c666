"""/metrics of real workers: what all their processes did, whatever became of these."""

from __future__ import annotations

import os
import signal
import subprocess
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from endurance import soak
from polling import wait_until
from system.conftest import stop
from system.test_health import HealthSite

pytestmark = [pytest.mark.server("redis"), pytest.mark.server("rabbitmq")]


class MeasuredSite(HealthSite):
    def metrics(self) -> dict[str, float]:
        """Return the sum of each sample over its labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found[sample.name] = found.get(sample.name, 0.0) + sample.value
        return found

    def refusal(self) -> tuple[int, str]:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=60).close()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        return 200, ""

    def handle(self, count: int, start: int = 0) -> None:
        for n in range(start, start + count):
            self.app.publish(self.module.Thing(n=n), root=str(n))

    def wait_counted(self, count: int) -> None:
        name = "event_handler_success_total"
        wait_until(lambda: self.metrics().get(name, 0) >= count, f"{count} to be counted")
        assert self.metrics()[name] == count
        assert self.metrics()["event_handler_duration_ms_count"] == count


@pytest.fixture
def measured(make_site, redis_url):
    def make(broker=redis_url, **environment):
        return make_site(make=MeasuredSite, broker=broker, **environment)

    return make


def children(process) -> list[int]:
    told = subprocess.run(
        ["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=False
    )
    return [int(pid) for pid in told.stdout.split()]


@pytest.mark.parametrize("broker", ["redis", soak("amqp")])
def test_counts_add_up_after_children_were_killed(request, measured, broker):
    site = measured(broker=request.getfixturevalue(f"{broker}_url"))
    with site.probed_worker() as process:
        assert site.metrics()["event_handler_success_total"] == 0, "rate() sees the first as well"
        site.handle(20)
        site.wait_counted(20)
        before = children(process)
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: len(set(children(process)) - set(before)) == 2, "new children")
        assert site.metrics()["event_handler_success_total"] == 20, "no count goes backwards"
        site.handle(10, start=20)
        site.wait_counted(30)


def test_children_that_are_recycled_take_no_count_with_them(measured):
    site = measured()
    with site.probed_worker("--max-tasks-per-child", "3"):
        site.handle(31)
        site.wait_counted(31)


@pytest.mark.parametrize("pool", ["threads", "solo", "gevent"])
def test_one_process_counts_for_itself(measured, pool):
    site = measured()
    with site.probed_worker(pool=pool):
        site.handle(10)
        site.wait_counted(10)


@pytest.mark.parametrize("where", ["module", "child"])
def test_an_sdk_of_the_apps_own_is_left_alone(measured, where):
    site = measured(HEALTH_SDK=where)
    with site.probed_worker():
        site.handle(1)
        site.wait_ran("handle")
        wait_until(lambda: site.refusal()[0] == 501, "the reason")
        assert "OpenTelemetry SDK of its own" in site.refusal()[1]
        assert "Overriding of current" not in site.text()


def test_an_analysis_worker_tells_of_open_entries(measured, ledger_url):
    site = measured(ANGZARR_LEDGER=ledger_url)
    with site.probed_worker(pool="threads"):
        site.app.publish(site.module.Thing(n=1, fate="give up"), root="1")
        site.wait_ran("handle")
        wait_until(lambda: site.metrics().get("event_handler_dlq_total") == 1, "the letter")
    process = site.begin_analysis(ANGZARR_ANALYSIS__ALERTS__LOOK_EVERY="1")
    try:
        wait_until(site.is_ready, "ready")
        wait_until(lambda: site.metrics().get("dlq_open_entries", 0) >= 1, "the entry")
    finally:
        stop(process)
