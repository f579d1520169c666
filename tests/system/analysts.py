"""Analysis workers that are quick to start and may be killed: forks of one process.

Run as a program it forks a worker for each line that it reads, and says its process id.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from datetime import timedelta

from system.conftest import HERE, PATH

#: What a killed worker held is taken up after that long.
LEASE = timedelta(seconds=0.2)


@contextmanager
def analysts(site):
    """Give a function that starts one more worker and returns its process id."""
    process = subprocess.Popen(
        [sys.executable, __file__], cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, env={**os.environ, **site.environment, "PYTHONPATH": PATH},
        start_new_session=True,
    )  # fmt: skip

    def start() -> int:
        process.stdin.write("\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    try:
        yield start
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)
        process.stdin.close()
        process.stdout.close()


def work() -> None:
    """Work until killed, with leases so short that successors need not wait."""
    import threading

    import road_app

    from angzarr.wiring.analysis_worker import open_worker

    with open_worker(road_app.app.ops, ["thing"]) as worker:
        (runner,) = (duty for duty in worker.duties if duty.name == "replay jobs")
        runner.lease = LEASE
        object.__setattr__(runner.replayer, "lease", LEASE)
        worker.run(threading.Event())


def main() -> None:
    """Fork a worker a line; the dead are not waited for, since somebody else killed them."""
    import road_app  # noqa: F401 - each fork has them already

    import angzarr.wiring.analysis_worker  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for _ in sys.stdin:
        pid = os.fork()
        if pid == 0:
            work()
            os._exit(1)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
