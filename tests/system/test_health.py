"""Probes of real workers: what an outage does not change, and what only a restart mends."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from functools import partial
from urllib.parse import urlsplit

import pytest

import warm_process
from endurance import each_once, soak
from polling import PATIENCE, wait_until
from redis_servers import free_port
from system.conftest import HERE, PATH, Site, stop

pytestmark = [pytest.mark.server("redis"), pytest.mark.server("rabbitmq")]

#: Seconds after which a worker of these tests counts as stalled: more than a try to connect takes.
STALLED = 6.0


class HealthSite(Site):
    """A site whose worker answers probes and takes harm."""

    name = "health_app"

    def __init__(self, folder, environment, monkeypatch):
        self.port = free_port()
        super().__init__(
            folder,
            {
                "ANGZARR_HEALTH__PORT": str(self.port),
                "HEALTH_STALLED": str(STALLED),
                **environment,
            },
            monkeypatch,
        )
        self.host = f"h{self.port}@here"

    def probe(self, path: str) -> tuple[int, dict]:
        """Return status and conditions; (0, {}) where nobody answers."""
        request = f"http://127.0.0.1:{self.port}{path}"
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read())["conditions"]
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())["conditions"]
        except OSError:
            return 0, {}

    def broken(self, path: str) -> set[str]:
        """Return the conditions that do not hold."""
        return {name for name, one in self.probe(path)[1].items() if not one["ok"]}

    def is_ready(self) -> bool:
        return self.probe("/readyz")[0] == 200

    @contextmanager
    def probed_worker(self, *options: str, **more: str):
        with self.begun_worker("--hostname", self.host, *options, **more) as process:
            wait_until(lambda: process.poll() is not None or self.is_ready(), "ready")
            assert process.poll() is None, self.text()[-3000:]
            yield process
            kill(process)

    def begin_analysis(self, **environment: str):
        return warm_process.begin(
            ["angzarr", "-A", self.name, "dlq", "analyze"],
            folder=HERE,
            environment={**os.environ, **self.environment, **environment, "PYTHONPATH": PATH},
            log=self.log,
        )

    def harm(self, how: str, **arguments: object) -> None:
        self.app.control.broadcast(how, arguments=arguments, destination=[self.host])

    def ask(self, probe: str) -> tuple[int, str]:
        """Run the command as an image's health check does."""
        environment = {**os.environ, "PYTHONPATH": PATH, "ANGZARR_HEALTH__PORT": str(self.port)}
        done = warm_process.run(["angzarr", "health", probe], environment=environment)
        return done.returncode, done.stdout + done.stderr


def kill(process) -> None:
    """End a worker of which nothing more is asked: one that was harmed might not end itself."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture
def health_site(make_site):
    return partial(make_site, make=HealthSite)


def server(request, broker: str) -> str:
    """Return the URL of the broker under test."""
    return request.getfixturevalue(f"{broker}_url")


@pytest.mark.parametrize(
    ("broker", "pool"), each_once(["redis", "amqp"], ["prefork", "threads", "solo", "gevent"])
)
def test_a_worker_whose_broker_is_cut_is_live_and_ready_again_when_it_is_back(
    request, health_site, cable, broker, pool
):
    proxy, through = cable(server(request, broker))
    site = health_site(broker=through)
    with site.probed_worker(pool=pool):
        proxy.cut()
        wait_until(lambda: "broker" in site.broken("/readyz"), "unready")
        longer = site.app._runtime.movement.monotonic() + 1.2 * STALLED
        while site.app._runtime.movement.monotonic() < longer:
            assert site.probe("/livez")[0] == 200, site.probe("/livez")
        proxy.mend()
        wait_until(site.is_ready, "ready again")
        with site.app.connection_for_write() as _:
            site.app.publish(site.module.Thing(n=1), root="1")
        site.wait_ran("handle")


@pytest.mark.parametrize("broker", [soak("redis"), "amqp"])
def test_a_worker_whose_broker_is_mute_is_live(request, health_site, cable, broker):
    proxy, through = cable(server(request, broker))
    site = health_site(broker=through, HEALTH_STALLED="15", ROAD_HEARTBEAT="2")
    with site.probed_worker():
        proxy.stall()  # every connection stays open, and new ones are taken
        wait_until(lambda: "broker" in site.broken("/readyz"), "unready")
        longer = site.app._runtime.movement.monotonic() + 20
        while site.app._runtime.movement.monotonic() < longer:
            assert site.broken("/livez") == set()
        proxy.mend()
        wait_until(site.is_ready, "ready again")


def test_a_worker_that_starts_while_its_servers_are_away_is_live_and_not_ready(
    health_site, cable, redis_url
):
    proxy, through = cable(redis_url)
    proxy.cut()
    site = health_site(broker=through, store=through)
    with site.begun_worker("--hostname", site.host) as process:
        wait_until(lambda: site.probe("/livez")[0] == 200, "live")
        assert {"broker", "lease", "store"} <= site.broken("/readyz")
        assert process.poll() is None
        proxy.mend()
        wait_until(site.is_ready, "ready")


def test_a_worker_whose_store_is_away_is_live_and_not_ready(health_site, cable, redis_url):
    proxy, through = cable(redis_url)
    site = health_site(store=through)
    with site.probed_worker():
        proxy.cut()
        wait_until(lambda: {"store", "lease"} <= site.broken("/readyz"), "unready")
        assert site.broken("/livez") == set()
        proxy.mend()
        wait_until(site.is_ready, "ready again")


@pytest.mark.parametrize("pool", ["prefork", soak("threads")])
def test_a_loop_that_is_blocked_is_dead(health_site, pool):
    site = health_site()
    with site.probed_worker(pool=pool):
        site.harm("block", seconds=5 * STALLED)
        wait_until(lambda: site.broken("/livez") == {"loop"}, "dead", 2 * STALLED + PATIENCE)
        wait_until(lambda: "loop" in site.broken("/readyz"), "unready as well")
        code, said = site.ask("live")
        assert (code, said[:25]) == (1, "Error: not live: loop: it")


def test_a_stopped_process_answers_nothing(health_site):
    site = health_site()
    with site.probed_worker(pool="threads") as process:
        assert site.ask("live")[0] == 0
        os.kill(process.pid, signal.SIGSTOP)
        try:
            code, said = site.ask("live")
        finally:
            os.kill(process.pid, signal.SIGCONT)
        assert (code, said) == (
            1, f"Error: 127.0.0.1 port {site.port} did not answer within 3 s\n"
        )  # fmt: skip


def test_a_queue_that_is_deleted_is_consumed_again(health_site):
    site = health_site()
    with site.probed_worker():
        with site.app.connection_for_write() as connection:
            connection.default_channel.queue_delete(site.app.conf.task_default_queue)
        wait_until(lambda: site.text().count("Connection to broker lost") > 0, "the cancel")
        assert site.broken("/livez") == set()
        wait_until(site.is_ready, "ready again")
        site.app.publish(site.module.Thing(n=1), root="1")
        site.wait_ran("handle")


@pytest.mark.parametrize("pool", ["prefork", soak("solo")])
def test_a_fetcher_that_asks_no_more_is_dead(health_site, redis_url, pool):
    site = health_site(broker=redis_url)
    with site.probed_worker(pool=pool):
        site.harm("deafen")
        wait_until(lambda: site.broken("/livez") == {"consuming"}, "dead")


@pytest.mark.soak
@pytest.mark.server("localstack")
def test_a_queue_that_is_polled_no_more_is_dead(request, health_site):
    made = request.getfixturevalue("sqs_site_environment")
    site = health_site(broker=made.pop("ROAD_BROKER"), **made)
    with site.probed_worker(pool="threads"):
        # SQS carries no remote control: the harm comes with a message.
        site.app.send_task("health_app.unpoll")
        wait_until(lambda: site.broken("/livez") == {"consuming"}, "dead")


def test_a_solo_worker_is_live_while_a_long_task_runs(health_site):
    site = health_site()
    with site.probed_worker(pool="solo"):
        site.app.publish(site.module.Thing(n=1, fate="gated"), root="1")
        site.wait_ran("handle")
        said = site.probe("/livez")[1]["loop"]["says"]
        assert said == "a task runs on it, as the solo pool does"
        later = site.app._runtime.movement.monotonic() + 1.2 * STALLED
        while site.app._runtime.movement.monotonic() < later:
            assert site.broken("/livez") == set()
        site.journal.with_name("gate").touch()
        wait_until(lambda: "moved" in site.probe("/livez")[1]["loop"]["says"], "turns")
        assert site.broken("/livez") == set()


def test_a_worker_without_children_is_dead(health_site):
    site = health_site()
    with site.probed_worker():
        site.journal.with_name("hang").touch()
        site.harm("kill_children")
        wait_until(lambda: site.broken("/readyz") == {"processes"}, "unready")
        wait_until(lambda: site.broken("/livez") == {"processes"}, "dead")
        site.journal.with_name("hang").unlink()
        wait_until(site.is_ready, "ready: a child that hung is killed, and the next is up")


def test_a_worker_that_cannot_fork_is_not_ready_and_tries_again(health_site):
    site = health_site()
    with site.probed_worker() as process:
        site.harm("unfork")
        wait_until(lambda: "processes" in site.broken("/readyz"), "unready")
        assert process.poll() is None


def test_a_worker_that_stops_is_not_ready_and_live_to_its_end(health_site):
    site = health_site(ANGZARR_SOFT_SHUTDOWN_TIMEOUT="6", ROAD_GRACE="60")
    with site.probed_worker() as process:
        site.app.publish(site.module.Thing(n=1, fate="gated"), root="1")
        site.wait_ran("handle")
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: "running" in site.broken("/readyz"), "unready")
        while (found := site.probe("/livez")[0]) != 0:
            assert found == 200
        assert process.wait(60) == 0, "within the grace that the environment says, not the code's"


def test_an_analysis_worker_is_ready_while_its_servers_are_there(
    health_site, cable, postgresql_url, amqp_url
):
    ledger, to_ledger = cable(postgresql_url)
    broker, to_broker = cable(amqp_url)
    site = health_site(broker=to_broker, letters=to_broker, ANGZARR_LEDGER=to_ledger)
    process = site.begin_analysis()
    try:
        wait_until(site.is_ready, "ready")
        ledger.cut()
        wait_until(lambda: "ledger" in site.broken("/readyz"), "no ledger")
        assert site.broken("/livez") == set()
        ledger.mend()
        wait_until(site.is_ready, "ready again")
        broker.cut()
        wait_until(lambda: {"dead_letters", "broker"} <= site.broken("/readyz"), "no broker")
        assert site.broken("/livez") == set()
        broker.mend()
        wait_until(site.is_ready, "ready again")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        stop(process)


def test_secrets_stay_out_of_what_is_told(health_site, redis_url):
    secret = "hunter2-never-shown"
    broken = urlsplit(redis_url)._replace(netloc=f":{secret}@127.0.0.1:{free_port()}").geturl()
    site = health_site(store=broken)
    with site.begun_worker("--hostname", site.host):
        wait_until(lambda: "store" in site.broken("/readyz"), "unready")
        assert secret not in str((site.probe("/readyz"), site.probe("/livez")))
        assert secret not in "".join(site.ask("ready")[1])
