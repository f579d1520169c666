"""A supervisor, its fork server and real processes, which are a few lines here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from angzarr.supervisor.process_link import DeadlinePage
from polling import wait_until

PROGRAM = textwrap.dedent(
    """
    import os, random, signal, socket, subprocess, sys, threading, time
    from pathlib import Path
    from angzarr.supervisor.fork_server import ForkServer
    from angzarr.supervisor.pool_health import PoolHealth
    from angzarr.supervisor.process_plan import ProcessPlan
    from angzarr.supervisor.supervisor import Supervisor

    folder = Path(sys.argv[1])

    def write(name):
        (folder / name).touch()

    def run(link):
        how = (folder / "how").read_text()
        if how == "refuse":
            return 3
        ended = threading.Event()

        def heed(number, _frame):
            write(f"{number}-{os.getpid()}")
            ended.set()

        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, heed)
        if how == "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        write(f"up-{link.number}-{os.getpid()}")
        for owner in link.owners:
            write(f"freed-{owner}")
        if how == "overdue":
            link.page.set(time.monotonic() - 3.5)
        while not ended.wait(0.05):
            if not link.say(ready=True, live=True, owner=f"owner-{os.getpid()}"):
                write(f"alone-{os.getpid()}")
                return 0
        return 0

    def serve(line):
        server = ForkServer(socket.socket(fileno=line))
        if (folder / "how").read_text() == "endless":
            write(f"endless-{os.getpid()}")
            time.sleep(600)
        if (folder / "how").read_text() == "broken":
            write(f"broken-{os.getpid()}")
            return 5
        server.say(hello={"grace": 0.5})
        link = server.serve()
        return 0 if link is None else run(link)

    if len(sys.argv) == 3:
        sys.exit(serve(int(sys.argv[2])))

    def begin(line):
        command = [sys.executable, __file__, str(folder), str(line)]
        return subprocess.Popen(command, pass_fds=(line,))

    plan = lambda hello: ProcessPlan(2, 2, 60.0, random.random)
    sys.exit(Supervisor(plan, begin, PoolHealth()).run())
    """
)


class World:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = folder / "program.py"
        self.program.write_text(PROGRAM)
        self.how("run")
        self.process: subprocess.Popen[bytes] | None = None

    def how(self, what: str) -> None:
        (self.folder / "how").write_text(what)

    def begin(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(self.program), str(self.folder)]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        return self.process

    def named(self, kind: str) -> list[str]:
        return sorted(path.name for path in self.folder.glob(f"{kind}-*"))

    def wait(self, kind: str, times: int = 1) -> list[str]:
        wait_until(lambda: len(self.named(kind)) >= times, f"{times} times {kind}")
        return self.named(kind)

    def pids(self) -> list[int]:
        return [int(name.rpartition("-")[2]) for name in self.named("up")]

    def living(self) -> list[int]:
        return [pid for pid in self.pids() if lives(pid)]


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    yield world
    if world.process is not None and world.process.poll() is None:
        world.process.terminate()
        try:
            world.process.wait(60)
        except subprocess.TimeoutExpired:
            world.process.kill()
            world.process.wait()
    wait_until(lambda: not world.living(), "the processes to be gone")


def test_two_processes_run_and_end_with_their_supervisor(world):
    process = world.begin()
    world.wait("up", 2)
    process.terminate()
    assert process.wait(60) == 0
    assert not world.living()


def test_a_killed_process_is_replaced_by_one_that_frees_its_claims(world):
    world.begin()
    world.wait("up", 2)
    first = world.pids()[0]
    os.kill(first, signal.SIGKILL)
    world.wait("freed")
    assert len(world.living()) == 2


def test_an_overdue_process_is_killed(world):
    world.how("overdue")
    world.begin()
    (pid, *_) = [int(name.rpartition("-")[2]) for name in world.wait("up")]
    world.how("run")
    wait_until(lambda: not lives(pid), "the overdue process to be killed")
    world.wait("up", 3)


def test_one_that_ignores_the_end_of_its_grace_is_killed(world):
    world.how("stubborn")
    process = world.begin()
    world.wait("up", 2)
    process.terminate()
    assert process.wait(60) == 0
    assert not world.living()


def test_a_second_signal_cuts_the_grace_short(world):
    world.how("stubborn")
    process = world.begin()
    world.wait("up", 2)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGQUIT)
    world.wait(f"{int(signal.SIGQUIT)}", 2)
    assert process.wait(60) == 0


def test_what_is_refused_at_the_start_ends_it_with_its_code(world):
    world.how("refuse")
    assert world.begin().wait(60) == 3


def test_an_app_that_cannot_be_loaded_ends_it_with_its_code(world):
    world.how("broken")
    assert world.begin().wait(60) == 5


def test_a_stop_does_not_wait_for_an_app_that_never_loads(world):
    world.how("endless")
    process = world.begin()
    world.wait("endless")
    process.terminate()
    assert process.wait(60) == 0


def test_a_fork_server_that_dies_is_replaced(world):
    world.begin()
    first = world.wait("up", 2)
    parent = Path(f"/proc/{world.pids()[0]}/stat").read_text().rpartition(")")[2].split()[1]
    os.kill(int(parent), signal.SIGKILL)
    wait_until(lambda: len(world.named("up")) == len(first) + 2, "two new ones")
    assert not world.named("freed"), "those of the dead server may still run"


def test_a_reload_of_what_cannot_be_loaded_leaves_all(world):
    process = world.begin()
    world.wait("up", 2)
    before = world.living()
    world.how("broken")
    process.send_signal(signal.SIGHUP)
    world.wait("broken")
    world.how("run")
    os.kill(before[0], signal.SIGKILL)  # what replaces it is of the app that was loaded
    world.wait("up", 3)
    assert before[1] in world.living()


def test_a_reload_drains_every_old_process(world):
    process = world.begin()
    world.wait("up", 2)
    before = world.living()
    process.send_signal(signal.SIGHUP)
    drained = world.wait(f"{int(signal.SIGHUP)}", 2)
    assert sorted(int(name.rpartition("-")[2]) for name in drained) == sorted(before)
    wait_until(lambda: len(world.living()) == 2, "two new ones")


def test_processes_end_when_their_fork_server_or_supervisor_is_killed(world):
    process = world.begin()
    world.wait("up", 2)
    process.kill()
    process.wait()
    wait_until(lambda: not world.living(), "the processes to be gone")


def test_the_deadline_page_is_read_by_another_process():
    page = DeadlinePage()
    assert not page.passed(1e9)
    pid = os.fork()
    if pid == 0:
        page.set(5.0)
        os._exit(0)
    os.waitpid(pid, 0)
    assert page.passed(5.1)
    assert not page.passed(4.9)
    page.set(None)
    assert not page.passed(1e9)
