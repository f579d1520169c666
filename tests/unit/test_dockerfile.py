"""Rules of ours for the Dockerfile; hadolint has the general ones (`make image-check`)."""

from __future__ import annotations

import fnmatch
import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]


class Instruction(NamedTuple):
    word: str
    told: str

    @property
    def exec_form(self) -> list[str]:
        """The words of a command in exec form; fails for a shell's."""
        return json.loads(self.told)


def instructions(text: str) -> list[Instruction]:
    """Read a Dockerfile: comments left out, continued lines joined."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines)).splitlines()
    return [Instruction(*re.sub(r"\s+", " ", line).strip().split(" ", 1)) for line in joined]


def stages(read: list[Instruction]) -> list[list[Instruction]]:
    """The instructions of each stage, FROM first."""
    starts = [number for number, one in enumerate(read) if one.word == "FROM"]
    return [read[a:b] for a, b in zip(starts, [*starts[1:], len(read)], strict=True)]


@pytest.fixture(scope="module")
def dockerfile() -> list[Instruction]:
    return instructions((CHECKOUT / "Dockerfile").read_text())


@pytest.fixture(scope="module")
def result(dockerfile) -> list[Instruction]:
    """The last stage: what becomes the image."""
    return stages(dockerfile)[-1]


def told(stage, word) -> list[str]:
    return [one.told for one in stage if one.word == word]


def test_the_base_is_one_release_that_can_be_pinned_by_digest(dockerfile):
    assert dockerfile[0].word == "ARG"
    name, _, default = dockerfile[0].told.partition("=")
    assert re.fullmatch(r"python:\d+\.\d+\.\d+-slim-\w+", default), "no moving tag such as latest"
    assert set(told(dockerfile, "FROM")) == {
        f"${{{name}}} AS dependencies", "dependencies AS package", f"${{{name}}}",
    }  # fmt: skip


def test_every_install_is_of_what_was_pinned_and_nothing_is_compiled(dockerfile):
    installs = [
        part
        for run in told(dockerfile, "RUN")
        for part in run.split("&&")
        if re.search(r"pip .*install ", part)
    ]
    assert len(installs) == 3
    for install in installs:
        assert "--require-hashes" in install
        assert "--no-cache-dir" in install
    for install in installs[:2]:
        assert "--only-binary :all:" in install, "ours is the wheel that was just built"


def test_nothing_is_fetched_but_by_pip_and_apt(dockerfile):
    assert told(dockerfile, "ADD") == []
    for run in told(dockerfile, "RUN"):
        assert not re.search(r"\b(curl|wget|git|npm)\b", run)


def test_no_variable_holds_a_secret(dockerfile):
    for one in dockerfile:
        if one.word in {"ARG", "ENV"}:
            assert not re.search(r"(?i)password|secret|token|api_?key|credential", one.told)


def test_the_last_user_is_a_number_so_that_kubernetes_can_tell_it_is_not_root(result):
    assert told(result, "USER") == ["10001:10001"]
    after = [one.word for one in result[result.index(Instruction("USER", "10001:10001")) :]]
    assert not {"RUN", "COPY"} & set(after), "all is root's, so its user can change nothing"


def test_tini_is_pid_1_and_hands_signals_to_the_process_itself(result):
    (entrypoint,) = (one for one in result if one.word == "ENTRYPOINT")
    (command,) = (one for one in result if one.word == "CMD")
    assert entrypoint.exec_form == ["/usr/bin/tini", "--"]
    shell, flag, said = command.exec_form
    assert (shell, flag) == ("/bin/sh", "-c")
    assert said.startswith("exec angzarr -A ")
    assert told(result, "STOPSIGNAL") == ["SIGTERM"]


def test_its_health_is_asked_where_it_is_served(result):
    (check,) = told(result, "HEALTHCHECK")
    options, _, command = check.partition("CMD ")
    assert json.loads(command) == ["angzarr", "health", "live"]
    assert {option.split("=")[0] for option in options.split()} == {
        "--interval", "--timeout", "--start-period", "--retries",
    }  # fmt: skip
    assert "ANGZARR_HEALTH__PORT=8081" in told(result, "ENV")[0]


def test_what_changes_with_every_build_comes_last(result):
    words = [one.word for one in result]
    first_label = words.index("ARG")
    assert set(words[first_label:]) == {"ARG", "LABEL"}


def test_only_what_is_copied_goes_into_the_build(dockerfile):
    copied = {
        source
        for copy in told(dockerfile, "COPY")
        if not copy.startswith("--from")
        for source in copy.split()[:-1]
    }
    rules = (CHECKOUT / ".dockerignore").read_text().splitlines()
    taken = {rule[1:] for rule in rules if rule.startswith("!")}
    assert "*" in rules
    assert taken == copied
    for source in copied:
        assert (CHECKOUT / source).exists()
    for left in ("src/angzarr/__pycache__", "examples/angzarr.db", "examples/angzarr.db-wal"):
        assert any(fnmatch.fnmatch(left, rule) for rule in rules[1:] if not rule.startswith("!"))


def test_make_image_fills_every_label(dockerfile, result):
    makefile = (CHECKOUT / "Makefile").read_text()
    filled = {"SOURCE"}  # of a fork as well: whoever publishes it says where it comes from
    for name in {arg.split("=")[0] for arg in told(result, "ARG")} - filled:
        assert f"{name}=$$(" in makefile
    assert "PYTHON_IMAGE=$(BASE)" in makefile
