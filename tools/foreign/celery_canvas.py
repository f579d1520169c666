"""Run Celery's own tests of its canvas on an angzarr app: python tools/foreign/celery_canvas.py

They come from the source distribution of the pinned Celery, checked by the hash that is pinned with
it; none of Celery's code is in this project. A worker of ours takes the place of Celery's, on a
Redis of this run's own. Tests that celery_canvas.toml lists must fail: each is a rule of ours.
What follows ``--`` is pytest's; with CANVAS_APP=celery nothing is replaced. Ends with pytest's
code, or with 3 if the tests cannot be had.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "servers"), str(HERE.parents[1])]

from server import CannotStart  # noqa: E402 - the same
from sources import CANNOT_BE_HAD, tests_of  # noqa: E402 - the same

from redis_servers import PrivateRedis  # noqa: E402 - found in the folders above

TESTS = ("t/integration/test_canvas.py", "t/integration/test_group_chains.py")
#: The tests, and what they import of their own; what they test is what is installed.
_WANTED = re.compile(r"[^/]+/(t/(?:__init__|skip|canvas_helpers|integration/.*)\.py)")
_SETTINGS = "[pytest]\npython_classes = test_*\nmarkers =\n    flaky\n    amqp\n"


def main(more: list[str]) -> int:
    """Run the tests and return the exit code."""
    try:
        folder = tests_of("celery", _WANTED)
    except CannotStart as problem:
        sys.stderr.write(f"Celery's tests cannot be had: {problem}\n")
        return CANNOT_BE_HAD
    with tempfile.TemporaryDirectory() as place, PrivateRedis(Path(place) / "redis") as server:
        settings = Path(place) / "pytest.ini"
        settings.write_text(_SETTINGS)
        return _run(folder, settings, server, more)


def _run(folder: Path, settings: Path, server: PrivateRedis, more: list[str]) -> int:
    command = [
        sys.executable, "-m", "pytest", *TESTS, "-c", settings, "--rootdir", folder,
        "-p", "celery.contrib.pytest", "-p", "canvas_app", "-p", "no:cacheprovider",
        "--timeout", "300", "--tb", "short", "--quiet", *more,
    ]  # fmt: skip
    environment = {
        **os.environ,
        "PYTHONPATH": f"{HERE}:{os.environ.get('PYTHONPATH', '')}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "C_FORCE_ROOT": "1",
        "TEST_BROKER": server.url_for(database=0),
        "TEST_BACKEND": server.url_for(database=0),
        "CANVAS_STORE": server.url_for(database=1),
        "REDIS_HOST": "127.0.0.1",
        "REDIS_PORT": str(server.port),
    }
    return subprocess.run(command, cwd=folder, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main([one for one in sys.argv[1:] if one != "--"]))
