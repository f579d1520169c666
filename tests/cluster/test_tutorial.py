"""The tutorial on Kubernetes: every command of it, in its order, on a real one."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cluster.conftest import CHECKOUT, Shell

pytestmark = pytest.mark.timeout(1800)
PAGE = CHECKOUT / "docs" / "tutorial" / "on-kubernetes.md"
SHOP = PAGE.parent / "shop"
#: What an image and the chart are made of, and what the reader stands in.
NEEDED = (
    "Dockerfile", ".dockerignore", "LICENSE", "README.md", "pyproject.toml", "requirements",
    "src", "examples", "charts", "docs/tutorial",
)  # fmt: skip
#: Commands that only look, so that they may be asked again until it is so.
LOOKS = re.compile(r"^kubectl (get|logs)|dlq (list|show)|dlq jobs list|fleet list")


@dataclass
class Step:
    command: str
    said: list[str] = field(default_factory=list)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def steps() -> Iterator[list[Step]]:
    for block in blocks("console"):
        found: list[Step] = []
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(Step(line.removeprefix("$ ")))
            else:
                found[-1].said.append(line)
        yield found


#: By the language of their block.
SHOWN = {"python": "shop.py", "dockerfile": "Dockerfile", "yaml": "values.yaml"}


@pytest.mark.parametrize(("language", "name"), SHOWN.items())
def test_the_page_shows_the_files_that_it_uses(language, name):
    assert (SHOP / name).read_text() in blocks(language)


def test_every_command_of_the_tutorial_does_what_the_page_says(commands, tmp_path, record):
    for name in NEEDED:
        copy(CHECKOUT / name, tmp_path / name)
    shell = Shell(tmp_path, commands)
    *before, replayed, clean = steps()
    *before, repaired = before
    for step in (step for block in before for step in block):
        take(shell, step)
    repair(tmp_path / "docs/tutorial/shop/shop.py")
    for step in [*repaired, *replayed, *clean]:
        take(shell, step)
    shell.run_until("kubectl get all --no-headers", nothing_is_left)
    record({command: round(seconds, 1) for command, seconds in shell.took})


def nothing_is_left(said: str) -> bool:
    return all("service/kubernetes" in line for line in said.splitlines())


def take(shell: Shell, step: Step) -> None:
    def is_said(text: str) -> bool:
        words = " ".join(text.split())
        return all(" ".join(line.split()) in words for line in step.said)

    if LOOKS.search(step.command):
        shell.run_until(step.command, is_said)
    else:
        said = shell.run(step.command)
        assert is_said(said), f"$ {step.command}\n{said}"


def repair(module: Path) -> None:
    """Do what the page says: write its cure above the first line of `pack`."""
    (cure,) = (block for block in blocks("python") if block.startswith("    "))
    first = "    value_of_a_parcel ="
    assert module.read_text().count(first) == 1
    module.write_text(module.read_text().replace(first, cure + first))


def copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)
