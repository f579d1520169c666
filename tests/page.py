"""A page of the docs, followed as a reader would: its commands in their order, as printed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pytest

_BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
#: What changes the terminal that it is typed into.
_STAYS = re.compile(r"(cd|export|\.) ")
#: What runs until somebody stops it: it gets a terminal of its own.
_RUNS_ON = re.compile(r"(celery|angzarr) .* worker|dlq analyze")
#: Commands that only look, so that they may be asked again until it is so.
_LOOKS = re.compile(r"dlq (list|show)|celery .* result")
#: Seconds until a command has ended, or shows what it must show.
PATIENCE = 120


@dataclass
class Command:
    """A line of a page after ``$ ``, and the lines below it that it must print, among others."""

    text: str
    said: list[str] = field(default_factory=list)

    def is_answered_by(self, output: str) -> bool:
        """Whether *output* has all lines; spaces count once, ``…`` is anything in one line."""
        printed = "\n".join(" ".join(line.split()) for line in output.splitlines())
        return all(re.search(_pattern(line), printed) for line in self.said)


def _pattern(line: str) -> str:
    return ".*".join(re.escape(part) for part in " ".join(line.split()).split("…"))


def blocks(page: Path, language: str) -> list[str]:
    """Return the blocks of *language* that a page has, in its order."""
    return [text for kind, text in _BLOCK.findall(page.read_text()) if kind == language]


def commands(page: Path) -> Iterator[Command]:
    """Yield the commands of a page in their order."""
    for block in blocks(page, "console"):
        found: list[Command] = []
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(Command(line.removeprefix("$ ")))
            else:
                found[-1].said.append(line)
        yield from found


class Terminal:
    """The terminals of one reader: one to type into, one for each command that runs on.

    *replaced* is what the page's addresses are here. Commands of *environment* find programs there.
    """

    def __init__(
        self, folder: Path, replaced: Mapping[str, str], environment: Mapping[str, str]
    ) -> None:
        self.folder = folder
        self._replaced = replaced
        self._environment = environment
        self._typed = ["set -eu"]
        self._running: list[tuple[str, subprocess.Popen[bytes], Path]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._running:
            self.stop_last()

    def here(self, text: str) -> str:
        """Return *text* with the addresses of this machine."""
        for there, here in self._replaced.items():
            text = text.replace(there, here)
        return text

    def take(self, command: Command) -> None:
        """Do what the page says and compare what it says with what it prints."""
        if _STAYS.match(command.text):
            self._typed.append(self.here(command.text))
            self._run("true")
        elif _RUNS_ON.search(command.text):
            self._start(command)
        else:
            self._compare(command)

    def stop_last(self) -> None:
        """Press Ctrl-C in the terminal that was opened last, and wait for its end."""
        self._stop(self._running.pop())

    def stop(self, part: str) -> None:
        """Press Ctrl-C where the command has *part* in it, and wait for its end."""
        one = next(one for one in self._running if part in one[0])
        self._running.remove(one)
        self._stop(one)

    def said(self) -> str:
        """Return what all commands printed that run on: for whoever wonders why."""
        return "\n".join(f"$ {text}\n{log.read_text()}" for text, _, log in self._running)

    def _stop(self, running: tuple[str, subprocess.Popen[bytes], Path]) -> None:
        _, process, _ = running
        process.send_signal(signal.SIGINT)
        try:
            process.wait(PATIENCE)
        finally:
            process.kill()
            process.wait()

    def _compare(self, command: Command) -> None:
        end = time.monotonic() + PATIENCE
        while True:
            done = self._run(self.here(command.text))
            if done.returncode == 0 and command.is_answered_by(done.stdout + done.stderr):
                return
            if not _LOOKS.search(command.text) or time.monotonic() > end:
                pytest.fail(
                    f"$ {command.text}\n{done.stdout[-3000:]}{done.stderr[-3000:]}\nand not:\n"
                    + "\n".join(command.said) + f"\n{self.said()[-6000:]}",
                    pytrace=False,
                )  # fmt: skip
            time.sleep(0.5)

    def _run(self, text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", "\n".join([*self._typed, text])],
            cwd=self.folder, env=dict(self._environment), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False, timeout=PATIENCE,
        )  # fmt: skip

    def _start(self, command: Command) -> None:
        log = self.folder / f"terminal-{time.monotonic_ns()}.log"
        script = "\n".join([*self._typed, f"exec {self.here(command.text)}"])
        with log.open("wb") as out:
            process = subprocess.Popen(
                ["bash", "-c", script],
                cwd=self.folder, env=dict(self._environment), stdin=subprocess.DEVNULL,
                stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        self._running.append((command.text, process, log))
        end = time.monotonic() + PATIENCE
        while not command.is_answered_by(log.read_text()):
            if process.poll() is not None or time.monotonic() > end:
                pytest.fail(f"$ {command.text}\n{log.read_text()[-6000:]}", pytrace=False)
            time.sleep(0.2)


def clean_environment() -> dict[str, str]:
    """Return the variables of this process without what would lead a reader's programs astray."""
    astray = ("ANGZARR_", "CELERY_", "PYTHON", "VIRTUAL_ENV", "PYTEST_", "PIP_")
    return {key: value for key, value in os.environ.items() if not key.startswith(astray)}
