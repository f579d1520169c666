"""`angzarr worker` under load: its processes, fork servers and supervisors are killed with SIGKILL.

Three kills are one of each; `make soak` does 50, on each broker.
"""

from __future__ import annotations

import os
import signal
import uuid
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import pytest

import warm_process
from endurance import longer, soak
from family import Family, is_alive
from polling import PATIENCE, wait_until
from system.conftest import HERE, PATH
from system.kill_tale import Tale

KILLS = longer(3, 50)
PROCESSES = 2
#: Events that are published before each kill, and the seconds that each of them takes.
EVENTS, SECONDS = 6, 0.4

pytestmark = [pytest.mark.longer, pytest.mark.timeout((KILLS + 1) * PATIENCE)]


@pytest.fixture
def site(request, make_site, redis_url, amqp_url):
    """A site on each broker; SQS gives back what its worker has said nothing of for 3 s."""
    if request.param == "sqs":
        at = urlsplit(request.getfixturevalue("sqs_endpoint")).netloc
        broker = f"sqs://{os.environ['AWS_ACCESS_KEY_ID']}:test@{at}//"
        return make_site(broker=broker, ROAD_VISIBILITY="3")
    return make_site(broker={"redis": redis_url, "amqp": amqp_url}[request.param])


class Supervised:
    """A supervisor, its fork server, and the processes that run handlers."""

    def __init__(self, site, *options: str) -> None:
        self._ready_before = site.text().count(" ready.")
        self._site = site
        self.process = warm_process.begin(
            [
                "angzarr", "-A", site.name, "worker", "--processes", str(PROCESSES),
                "--loglevel", "INFO", "--without-mingle", "--without-gossip",
                "--hostname", f"w{uuid.uuid4().hex[:8]}@%h", *options,
            ],
            folder=HERE,
            environment={**os.environ, **site.environment, "PYTHONPATH": PATH},
            log=site.log,
        )  # fmt: skip
        self.family = Family(self.process.pid)

    def server(self) -> int:
        """The fork server; a test waits for it."""
        return wait_until(self.family.children, "a fork server")[-1]

    def pool(self) -> set[int]:
        """The processes that run handlers, of all fork servers that live."""
        return {pid for one in self.family.children() for pid in self.family.children(one)}

    def wait_ready(self, more: int = PROCESSES) -> None:
        """Wait until *more* processes have said that they are ready, since it was asked last."""
        due = self._ready_before + more
        wait_until(lambda: self._site.text().count(" ready.") >= due, "the processes to be ready")
        self._ready_before = self._site.text().count(" ready.")


@contextmanager
def supervised(site, *options):
    """A supervisor whose processes are ready, killed with them at the end."""
    one = Supervised(site, *options)
    try:
        one.wait_ready()
        yield one
    finally:
        one.family.kill()
        one.process.wait(60)


def at_work(tale, pids):
    """A process of *pids* that runs a handler by now, or None."""
    handled = {(line["n"], line["pid"]) for line in tale.site.ran("handled")}
    begun = [(line["n"], line["pid"]) for line in tale.site.ran("handle")]
    busy = [pid for n, pid in begun if (n, pid) not in handled and pid in pids]
    return busy[-1] if busy else None


def wait_gone(pids):
    wait_until(lambda: not any(map(is_alive, pids)), f"{pids} to end")


@pytest.mark.parametrize("site", ["redis", soak("amqp"), soak("sqs")], indirect=True)
def test_sigkill_of_a_process_a_fork_server_or_a_supervisor_loses_nothing(site):
    """A process that is killed cuts what it runs; the others end it in order, so nothing is cut."""
    tale, deaths = Tale(site), []
    with ExitStack() as workers:
        worker = workers.enter_context(supervised(site))
        for kill in range(KILLS):
            tale.publish(EVENTS, SECONDS)
            pids = wait_until(lambda one=worker: len(one.pool()) == PROCESSES and one.pool())
            busy = wait_until(lambda those=pids: at_work(tale, those), "a handler to run")
            what = ("process", "server", "supervisor")[kill % 3]
            dying = {busy} if what == "process" else pids
            victim = {"process": busy, "server": worker.server(), "supervisor": worker.process.pid}
            os.kill(victim[what], signal.SIGKILL)
            wait_gone(dying)
            before = tale.cut.total()
            tale.note_cut(dying, by="pid")
            assert what == "process" or tale.cut.total() == before, f"a {what} cut something"
            deaths.append(what)
            if what == "supervisor":
                worker.process.wait(60)
                worker = workers.enter_context(supervised(site))
            else:
                worker.wait_ready(len(dying))
        tale.finish()
        worker.process.terminate()
        assert worker.process.wait(60) == 0
    assert set(deaths) == {"process", "server", "supervisor"}
    tale.check()


@pytest.mark.parametrize("site", ["redis"], indirect=True)
def test_beat_ends_with_its_fork_server_and_another_begins(site, tmp_path):
    """Two of them would send each message of the schedule twice."""
    with supervised(site, "--beat", "--schedule", str(tmp_path / "schedule")) as worker:
        everything = PROCESSES + 1
        pids = wait_until(lambda: len(worker.pool()) == everything and worker.pool())
        os.kill(worker.server(), signal.SIGKILL)
        wait_gone(pids)
        wait_until(lambda: len(worker.pool()) == everything, "the successors")
