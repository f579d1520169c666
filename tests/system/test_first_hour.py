"""The pages of a stranger's first hour, followed command by command as they are printed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from page import Terminal, blocks, clean_environment, commands
from polling import wait_until

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]
CHECKOUT = Path(__file__).resolve().parents[2]
TUTORIAL = CHECKOUT / "docs/tutorial.md"
MOVE = CHECKOUT / "docs/how-to/move-a-celery-project.md"
#: What `pip install .` and the examples are made of.
NEEDED = ("pyproject.toml", "README.md", "LICENSE", "src", "examples")
#: Commands with tests of their own, which take long: test_demo.py, tools/servers.
ELSEWHERE = {"make demo", "make servers-up"}


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A checkout with an environment that has what is pinned, but not yet this project."""
    place = tmp_path / "angzarr"
    for name in NEEDED:
        source = CHECKOUT / name
        target = place / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    subprocess.run([sys.executable, "-m", "venv", place / ".venv"], check=True, timeout=120)
    (site,) = (place / ".venv/lib").glob("python3.*/site-packages")
    (pinned,) = Path(sys.prefix, "lib").glob("python3.*/site-packages")
    (site / "pinned.pth").write_text(f"{pinned}\n")
    python = place / ".venv/bin/python"
    script = python.with_name("celery")  # pip would write it with Celery
    script.write_text(f"#!{python}\nfrom celery.__main__ import main\n\nmain()\n")
    script.chmod(0o755)
    return place


@pytest.fixture
def environment() -> dict[str, str]:
    """What programs need to install without the network, and tables to be wide enough."""
    return {
        **clean_environment(),
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip's word for: none
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "COLUMNS": "250",
    }


@pytest.fixture
def here(redis_url, amqp_url) -> dict[str, str]:
    """The servers that the pages call localhost."""
    return {
        "redis://localhost:6379/0": redis_url,
        "redis://localhost:6379/1": redis_url,
        "amqp://guest:guest@localhost:5672//": amqp_url,
    }


def test_every_command_of_the_tutorial_does_what_the_page_says(checkout, environment, here):
    examples = checkout / "examples"
    with Terminal(checkout, here, environment) as reader:
        for (settings,) in [blocks(TUTORIAL, "yaml")]:
            (examples / "angzarr.yaml").write_text(reader.here(settings))
        *_, publish, cure = blocks(TUTORIAL, "python")
        (examples / "publish.py").write_text(publish)
        started = 0
        for command in commands(TUTORIAL):
            if command.text in ELSEWHERE:
                continue
            if " worker" in command.text and (started := started + 1) == 2:
                repair(examples / "orders.py", cure)
                reader.stop("worker")
            reader.take(command)
            if command.text == "python publish.py":
                (log,) = blocks(TUTORIAL, "text")[-1:]
                wait_until(lambda: says(reader.said(), log), log)  # noqa: B023 - called here


def test_every_command_of_a_move_does_what_the_page_says(checkout, tmp_path, environment, here):
    project = tmp_path / "shop"
    project.mkdir()
    module = project / "shop.py"
    before, line = blocks(MOVE, "python")[:2]
    here = {**here, "/path/to/angzarr": str(checkout)}
    path = f"{checkout / '.venv/bin'}:{environment['PATH']}"
    with Terminal(project, here, {**environment, "PATH": path}) as reader:
        settings = blocks(MOVE, "yaml")[0]
        (project / "angzarr.yaml").write_text(reader.here(settings))
        stock = reader.here(before)
        first = stock.splitlines(keepends=True)[0]
        assert f"was: {first.strip()}" in line, "the page says what the new line replaces"
        module.write_text(stock)
        workers = 0
        for command in commands(MOVE):
            if " worker" in command.text:
                workers += 1
                if workers == 2:  # the way back
                    reader.stop("worker")
                module.write_text(stock.replace(first, line) if workers == 1 else stock)
            reader.take(command)
        wait_until(lambda: "succeeded" in reader.said(), "the old worker runs a task again")


def says(printed: str, lines: str) -> bool:
    """Whether each of *lines*, where … stands for anything, is among what was *printed*."""
    patterns = (".*".join(map(re.escape, line.split("…"))) for line in lines.splitlines())
    return all(re.search(pattern, printed) for pattern in patterns)


def repair(module: Path, cure: str) -> None:
    """Do what the page says: write its cure above the line that failed."""
    failed = "    value_of_a_parcel ="
    assert module.read_text().count(failed) == 1
    module.write_text(module.read_text().replace(failed, cure + failed))
