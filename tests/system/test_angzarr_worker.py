"""`angzarr worker`: processes under one supervisor, each a whole consumer."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import urllib.error
import urllib.request
import uuid
from collections import Counter
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path

import pytest

import warm_process
from polling import wait_until
from system.conftest import HERE, PATH, Site, stop


class SupervisedSite(Site):
    name = "supervised_app"

    @contextmanager
    def supervisor(self, *options: str, ready: int | None = 2, **environment: str):
        """A supervisor whose first *ready* processes are ready."""
        said = len(self.text())
        process = warm_process.begin(
            [
                "angzarr", "-A", self.name, "worker", "--loglevel", "INFO", "--without-mingle",
                "--without-gossip", "--hostname", f"w{uuid.uuid4().hex[:8]}@%h", *options,
            ],
            folder=HERE,
            environment={**os.environ, **self.environment, **environment, "PYTHONPATH": PATH},
            log=self.log,
        )  # fmt: skip
        try:
            if ready:
                wait_until(
                    lambda: (
                        process.poll() is not None or self.text()[said:].count(" ready.") >= ready
                    ),
                    f"{ready} processes to be ready",
                )
                assert process.poll() is None, self.text()[-3000:]
            yield process
        finally:
            stop(process)

    def started(self) -> dict[int, int]:
        """The process ids that the supervisor named last, by number."""
        found = {}
        for line in self.text().splitlines():
            if "process_started: " in line:
                number, pid = line.partition("process_started: ")[2].split('"')[0].split(", pid ")
                found[int(number)] = int(pid)
        return found

    def said(self, what: str, times: int = 1) -> None:
        wait_until(lambda: self.text().count(what) >= times, f"{what!r} to be said")


@pytest.fixture
def site(make_site, redis_url):
    return make_site(broker=redis_url, make=SupervisedSite)


@pytest.fixture(params=["redis", "amqp"])
def any_site(make_site, redis_url, amqp_url, request):
    broker = {"redis": redis_url, "amqp": amqp_url}[request.param]
    return make_site(broker=broker, make=SupervisedSite)


def lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def ask(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


@pytest.mark.parametrize("way", [(), ("--threads", "2")])
def test_every_event_is_handled_once_and_a_stop_is_clean(any_site, way):
    tasks = any_site.module
    with any_site.supervisor("--processes", "2", *way) as process:
        sent = count()

        def both_have_run() -> bool:
            for n in islice(sent, 20):  # one process may take all of a few
                tasks.mark.delay(n)
            return len({line["pid"] for line in any_site.ran("mark")}) == 2

        wait_until(both_have_run, "both processes to have run some")
        any_site.wait_ran("mark", next(sent))
        process.terminate()
        assert process.wait(60) == 0
    assert set(Counter(line["n"] for line in any_site.ran("mark")).values()) == {1}
    assert not any(map(lives, any_site.started().values()))


def test_a_soft_limit_is_raised_in_the_handler_of_every_kind(site):
    with site.supervisor("--processes", "1", ready=1):
        site.module.sleep_softly.delay(1)
        site.wait_ran("soft")
        site.module.wait_softly.delay(2)
        site.wait_ran("soft", 2)
    with site.supervisor("--processes", "1", "--threads", "2", ready=1):
        site.module.wait_softly.delay(3)
        found = site.wait_ran("soft", 3)
    assert found[-1]["error"] == "SoftTimeLimitExceeded"


@pytest.mark.parametrize("way", [(), ("--threads", "2")])
def test_a_hard_limit_ends_the_process_and_its_event_is_tried_again(site, way):
    with site.supervisor("--processes", "1", *way, ready=1):
        site.module.hang.delay(1)
        site.wait_ran("hung")
        site.module.mark.delay(2)
        site.wait_ran("mark")
    first, second = site.ran("hang")
    assert first["pid"] != second["pid"]
    assert not lives(first["pid"])


def test_a_process_stuck_in_c_is_killed_and_its_successor_frees_its_claims(any_site):
    with any_site.supervisor("--processes", "1", ready=1):
        any_site.module.stick.delay(1)
        any_site.wait_ran("stuck")
    any_site.said("process_killed")
    first, second = any_site.ran("stick")
    assert first["pid"] != second["pid"]


def test_an_overdue_thread_lets_others_go_on_elsewhere(site):
    with site.supervisor("--processes", "1", "--threads", "2", ready=1):
        site.module.wait_for_gate.delay(1)
        site.wait_ran("wait")
        site.module.hang.delay(2)
        site.wait_ran("hung")
        first, _ = site.wait_ran("wait", 2)
        # What a thread left behind runs, fenced, until its process has ended.
        wait_until(lambda: not lives(first["pid"]), "the overdue process to be gone")
        site.journal.with_name("gate").touch()
        site.wait_ran("waited")
    assert len(site.ran("waited")) == 1


def test_a_process_that_dies_is_replaced_and_its_event_runs_again(any_site):
    with any_site.supervisor("--processes", "2"):
        any_site.module.die.delay(1)
        any_site.wait_ran("died")
    first, second = any_site.ran("die")
    assert first["pid"] != second["pid"]


def test_a_process_is_replaced_after_as_many_tasks_as_it_may_run(site):
    with site.supervisor("--processes", "1", "--max-tasks-per-child", "2", ready=1):
        for n in range(6):
            site.module.mark.delay(n)
        site.wait_ran("mark", 6)
    per_process = Counter(line["pid"] for line in site.ran("mark"))
    assert max(per_process.values()) == 2
    assert set(Counter(line["n"] for line in site.ran("mark")).values()) == {1}


def test_a_process_that_uses_too_much_memory_is_replaced(site):
    with site.supervisor("--processes", "1", "--max-memory-per-child", "400000", ready=1):
        site.module.eat.delay(1, 512)
        site.said("of memory, 400000 are its limit")
        site.said(" ready.", 2)
        site.module.mark.delay(2)
        (mark,) = site.wait_ran("mark")
    (eaten,) = site.ran("eat")
    assert mark["pid"] != eaten["pid"]


def test_a_reload_replaces_all_processes_and_what_runs_ends_in_its_own_time(site):
    with site.supervisor("--processes", "2", SUPERVISED_SAYS_LOADED="1") as process:
        site.module.wait_for_gate.delay(1)
        site.wait_ran("wait")
        process.send_signal(signal.SIGHUP)
        site.said(" ready.", 4)
        site.module.mark.delay(2)
        (mark,) = site.wait_ran("mark")
        assert mark["loaded"] == 1
        site.journal.with_name("gate").touch()
        site.wait_ran("waited")
        site.said("process_ended", 2)
    assert len(site.ran("wait")) == 1


def test_a_reload_of_a_broken_app_leaves_what_runs(site):
    with site.supervisor("--processes", "1", ready=1) as process:
        site.journal.with_name("broken").write_text("a colon is missing")
        process.send_signal(signal.SIGHUP)
        site.said("reload_failed")
        site.said("a colon is missing")
        site.module.mark.delay(1)
        site.wait_ran("mark")
        site.journal.with_name("broken").unlink()
        process.send_signal(signal.SIGHUP)
        site.said(" ready.", 2)


def test_processes_stop_by_themselves_when_their_supervisor_dies(site):
    with site.supervisor("--processes", "2") as process:
        site.module.mark.delay(1)
        site.wait_ran("mark")
        process.kill()
        wait_until(lambda: not any(map(lives, site.started().values())), "the processes to be gone")


def test_a_fork_server_that_dies_is_replaced_with_its_processes(site):
    with site.supervisor("--processes", "1", ready=1):
        (pid,) = site.started().values()
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(parent, signal.SIGKILL)
        site.said("fork_server_died")
        site.said(" ready.", 2)
        site.module.mark.delay(1)
        site.wait_ran("mark")
    assert not lives(pid)


def test_remote_control_reaches_each_process_and_ends_one_for_good(site):
    with site.supervisor("--processes", "2") as process:
        control = site.app.control
        nodes = sorted(set(re.findall(r"(w[0-9a-f]{8}-\d+@\S+) ready\.", site.text())))
        heard: set[str] = set()  # others on this Redis may answer too, and one may answer late

        def all_answer() -> bool:
            heard.update(name for answer in control.ping() for name in answer)
            return heard.issuperset(nodes)

        wait_until(all_answer, "both to answer")
        names = nodes
        assert [name.partition("@")[0].rpartition("-")[2] for name in names] == ["1", "2"]
        control.shutdown(destination=names[:1])
        site.said("process_left: 1, by remote control")
        site.said("process_ended: 1")
        site.module.mark.delay(1)
        site.wait_ran("mark")
        control.shutdown()
        assert process.wait(60) == 0
    assert len(site.started()) == 2


def test_one_port_answers_for_all_processes(site):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with site.supervisor("--processes", "2", ANGZARR_HEALTH__PORT=str(port)) as process:
        wait_until(lambda: ask(port, "/readyz")[0] == 200, "it to be ready")
        wait_until(lambda: '"2 of 2 are up"' in ask(port, "/readyz")[1], "both to be up")
        for n in range(20):
            site.module.mark.delay(n)
        site.wait_ran("mark", 20)

        def handled() -> float:
            lines = ask(port, "/metrics")[1].splitlines()
            return sum(
                float(line.rpartition(" ")[2])
                for line in lines
                if line.startswith("event_handler_success_total")
            )

        wait_until(lambda: handled() == 20, "the metrics of both")
        conditions = json.loads(ask(port, "/livez")[1])["conditions"]
        assert set(conditions) == {"loop", "processes"}
        os.kill(min(site.started().values()), signal.SIGKILL)
        wait_until(lambda: len(site.text().split("process_started")) == 4, "a new process")
        wait_until(lambda: '"2 of 2 are up"' in ask(port, "/readyz")[1], "both to be up")
        wait_until(lambda: handled() == 20, "what the dead one measured")
        process.terminate()
        process.wait(60)


def test_it_starts_more_processes_while_messages_wait(site):
    with site.supervisor("--autoscale", "3,1", ready=1):
        for n in range(12):
            site.module.wait_for_gate.delay(n)
        site.wait_ran("wait", 3)
        site.journal.with_name("gate").touch()
        site.wait_ran("waited", 12)
    assert len({line["pid"] for line in site.ran("wait")}) >= 3


def test_signals_start_one_more_and_one_less(site):
    with site.supervisor("--processes", "1", ready=1) as process:
        process.send_signal(signal.SIGTTIN)
        site.said(" ready.", 2)
        process.send_signal(signal.SIGTTOU)
        site.said("process_ended: 2")


def test_beat_runs_beside_the_processes_and_once_after_a_reload(site, tmp_path):
    schedule = str(tmp_path / "schedule")
    options = ("--processes", "1", "-B", "-s", schedule)
    with site.supervisor(*options, ready=1, SUPERVISED_BEAT="1") as process:
        site.wait_ran("ring", 2)
        before = site.started()[0]
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: site.started()[0] != before, "a new beat")
        assert not lives(before)
        rung = len(site.ran("ring"))
        site.wait_ran("ring", rung + 2)


def test_a_grace_is_one_for_all_and_a_second_signal_cuts_it_short(site):
    with site.supervisor("--processes", "2", ROAD_GRACE="300") as process:
        for n in range(2):
            site.module.wait_for_gate.delay(n)
        site.wait_ran("wait", 2)
        process.terminate()
        site.said("worker: Warm shutdown", 2)
        process.terminate()
        assert process.wait(60) == 0
    assert not site.ran("waited")
    with site.supervisor("--processes", "1", ready=1):
        site.journal.with_name("gate").touch()
        site.wait_ran("waited", 2)


def test_what_cannot_start_says_why_once_and_ends(site):
    with site.supervisor(
        "--processes", "2", ready=None, ROAD_DLQ='{"backend": "kafka"}'
    ) as process:
        assert process.wait(60) != 0
    text = site.text()
    assert text.count("kafka_brokers") == 1, text
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("-c", "4"), "--processes"),
        (("--pool=prefork",), "celery worker"),
        (("--processes", "2", "--autoscale", "1,2"), "exclude each other"),
        (("--autoscale", "0,x"), "two numbers"),
        (("--threads", "2", "--coroutines", "9"), "exclude each other"),
        (("--no-such-option",), "--no-such-option"),
    ],
)
def test_wrong_options_are_refused_in_a_sentence(site, options, says):
    with site.supervisor(*options, ready=None) as process:
        assert process.wait(60) == 2
    assert says in site.text()
    assert "Traceback" not in site.text()
