"""The Procfile, run by a process manager on real servers (spec part 8)."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from polling import PATIENCE, wait_until
from system.conftest import HERE, PATH, Site, stop

PROCFILE = Path(__file__).resolve().parents[2] / "Procfile"
NAMES = ["beat", "dashboard", "dlq-analysis", "worker"]


class ProcfileSite(Site):
    name = "procfile_app"

    @contextmanager
    def managed(self, folder: Path, port: int):
        """All processes of the Procfile, by honcho."""
        env = {
            **os.environ, **self.environment, "PYTHONPATH": PATH, "ANGZARR_APP": self.name,
            "ANGZARR_DASHBOARD_PORT": str(port), "TMPDIR": str(folder),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }  # fmt: skip
        command = ["honcho", "--app-root", str(HERE), "--procfile", str(PROCFILE), "start"]
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *command], stdout=log, stderr=log, env=env
            )
        try:
            yield process
        finally:
            self._end(process)

    def _end(self, process):
        """End the manager, then what it leaves: each of its children has a session of its own."""
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE)
        for pid in self.started().values():
            try:
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def started(self) -> dict[str, int]:
        found = re.findall(r"system +\| (\S+) started \(pid=(\d+)\)", self.plain())
        return {name.removesuffix(".1"): int(pid) for name, pid in found}

    def stopped(self) -> dict[str, int]:
        found = re.findall(r"system +\| (\S+) stopped \(rc=(-?\d+)\)", self.plain())
        return {name.removesuffix(".1"): int(code) for name, code in found}

    def plain(self) -> str:
        return re.sub(r"\x1b\[[\d;]*m", "", self.text())


@pytest.fixture
def procfile_site(make_site, amqp_url, ledger_url):
    return make_site(make=ProcfileSite, broker=amqp_url, ANGZARR_LEDGER=ledger_url, ROAD_GRACE="1")


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@contextmanager
def another_beat(site, folder):
    command = [sys.executable, "-m", "celery", "-A", site.name, "beat", "--loglevel", "INFO"]
    with (folder / "beat.log").open("ab") as log:
        process = subprocess.Popen(
            [*command, "--schedule", str(folder / "another-beat")], cwd=HERE, stdout=log,
            stderr=log, env={**os.environ, **site.environment, "PYTHONPATH": PATH},
            start_new_session=True,
        )  # fmt: skip
    try:
        yield lambda: (folder / "beat.log").read_text().count("Sending due task")
    finally:
        stop(process)


def counted(site, what, key="n") -> Counter:
    return Counter(line[key] for line in site.ran(what))


def listed(site: ProcfileSite, port: int) -> list[dict]:
    """What the dashboard's API says waits; nothing while it does not answer yet."""
    token = re.search(r"/login\?token=(\S+)", site.plain())
    if token is None:
        return []
    try:
        answer = httpx.get(
            f"http://127.0.0.1:{port}/api/v1/entries",
            headers={"X-API-Key": token[1]}, trust_env=False,
        )  # fmt: skip
    except httpx.TransportError:
        return []
    answer.raise_for_status()
    return answer.json()["entries"]


def test_all_four_run_and_end_together_and_every_event_is_handled_once(
    procfile_site, port, tmp_path
):
    """Beats are doubled on purpose: the event of each second is handled once all the same."""
    site, thing = procfile_site, procfile_site.module.Thing
    with site.managed(tmp_path, port) as manager:
        wait_until(lambda: " ready." in site.text(), "the worker to be ready")
        failed = site.app.publish(thing(n=-1, fate="give up"), root="o-1")
        for n in range(20):
            site.app.publish(thing(n=n))
        site.wait_ran("handled", 20)
        entries = wait_until(lambda: listed(site, port), "the dead letter to be shown")
        assert len(entries) == 1, entries
        entry = entries[0]
        assert (entry["event_id"], entry["domain"]) == (failed.id, "thing")
        with another_beat(site, tmp_path) as rung_by_the_other:
            site.wait_ran("struck", 5)
            wait_until(lambda: rung_by_the_other() >= 2, "the other beat to ring")
        site.app.publish(thing(n=100, fate="long", seconds=300, times=1))
        wait_until(lambda: 100 in counted(site, "handle"), "the long one to run")
        for n in range(101, 160):
            site.app.publish(thing(n=n, fate="slow", seconds=0.05))
        wait_until(lambda: 101 in counted(site, "handled"), "some to be handled")
        manager.send_signal(signal.SIGTERM)
        manager.wait(PATIENCE)
    assert sorted(site.started()) == NAMES
    assert site.stopped() == dict.fromkeys(NAMES, 0), site.plain()[-3000:]
    assert set(range(101, 160)) - set(counted(site, "handled")), "it was under load"
    rung = site.plain().count("Sending due task") + rung_by_the_other()
    with site.worker():
        everything = {*range(20), *range(100, 160)}
        wait_until(lambda: everything <= set(counted(site, "handled")), "the rest")
        wait_until(lambda: len(site.ran("ring")) >= rung, "what was rung for last")
        seconds = set(counted(site, "ring", "second"))
        wait_until(lambda: seconds <= set(counted(site, "struck", "second")), "its events")
    assert counted(site, "handled") == dict.fromkeys(everything, 1)
    assert len(site.ran("ring")) == rung, "no ring was lost, none came twice"
    assert counted(site, "struck", "second") == dict.fromkeys(seconds, 1)
    assert len(seconds) < rung, "two beats did ring for one second"
