"""In `make soak`: a minute of chaos is accounted for, and a broken guarantee is noticed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.fates import FATES, POISON, fates_for
from chaos.faults import KINDS
from chaos.verdict import VOID
from programs import require

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

#: Where faults go on side by side, and of how many kinds they are in a run at the least.
LANES, KINDS_AT_LEAST = {"fleet", "servers"}, 4
CHAOS = Path(__file__).resolve().parents[2] / "tools" / "chaos"


@pytest.fixture(autouse=True)
def _programs():
    require("redis-server", "redis-server")
    require("rabbitmqctl", "rabbitmq-server")


def chaos(folder: Path, *options: str, seconds: float, timeout: float) -> tuple[int, str]:
    """Run the checker; returns its exit code and what it said.

    A run of which too much began in peace shows nothing: the next one lasts twice as long.
    """
    for length in (seconds, 2 * seconds, 4 * seconds):
        command = [
            sys.executable, str(CHAOS), "--dir", str(folder), "--seed", "1",
            "--duration", str(length), *options,
        ]  # fmt: skip
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=timeout + length, check=False,
        )  # fmt: skip
        if not any(set(summary(one)["breaches"]) == {VOID} for one in folder.glob("*")):
            break
    return done.returncode, done.stdout


def summary(folder: Path) -> dict:
    """What the run in *folder* came to; nothing but the breaches where it broke down."""
    file = folder / "summary.json"
    return json.loads(file.read_text()) if file.exists() else {"breaches": {}}


def test_a_minute_of_chaos_is_accounted_for(tmp_path):
    """Each event that was published has one of its fate's ends, however many a machine manages."""
    code, said = chaos(tmp_path, seconds=60, timeout=280)
    assert code == 0, said
    for broker in ("redis", "rabbitmq"):
        check(broker, tmp_path, said)


@pytest.mark.server("localstack")
def test_half_a_minute_of_chaos_on_sqs_is_accounted_for(tmp_path):
    code, said = chaos(tmp_path, "--broker", "sqs", seconds=30, timeout=280)
    assert code == 0, said
    check("sqs", tmp_path, said)


def check(broker: str, folder: Path, said: str) -> None:
    """Each event of the run on *broker* has one of its fate's ends, and faults struck."""
    told = summary(folder / broker)
    assert (told["lost"], told["breaches"]) == (0, {}), said
    ended = [(*end.split(": "), number) for end, number in told["ends"].items()]
    assert sum(number for *_, number in ended) == told["owed"] >= told["events"], said
    assert {fate for fate, *_ in ended} == {one.name for one in fates_for(broker)}, said
    # What was cut at three starts is poison, whatever else it was meant for.
    wrong = [(fate, end) for fate, end, _ in ended if end not in FATES[fate].ends | {POISON}]
    assert not wrong, said
    assert {KINDS[name].lane for name in told["faults"]} == LANES, said
    assert len(told["faults"]) >= KINDS_AT_LEAST, said
    assert told["cut"] > 0, "no fault struck anything: nothing was tried"


def on_sqs(*values: object) -> object:
    """A case that needs SQS."""
    return pytest.param("sqs", *values, marks=pytest.mark.server("localstack"))


MUTATIONS = [
    ("redis", "drop-letter", "lost", 4, "ok,permanent", "none"),
    ("redis", "skip-claim", "repeated", 5, "ok,duplicates", "flood"),
    ("redis", "copy-last", "lost", 4, "ok,transient", "none"),
    ("redis", "any-order", "out of order", 6, "ordered", "none"),
    ("redis", "drop-fact", "no fact", 4, "ok", "none"),
    ("rabbitmq", "drop-fact", "no fact", 4, "ok", "none"),
    ("rabbitmq", "skip-claim", "repeated", 5, "ok,duplicates", "flood"),
    ("rabbitmq", "lose-completion", "orphan claim", 4, "ok", "none"),
    on_sqs("skip-claim", "repeated", 5, "ok,duplicates", "flood"),
    on_sqs("lose-completion", "orphan claim", 4, "ok", "none"),
    # These need workers to be killed or frozen first.
    ("redis", "early-ack", "lost", 8, "ok,slow", "kill worker"),
    ("redis", "lose-fence", "two ends", 13, "ok,fickle", "freeze worker"),
    ("rabbitmq", "lose-fence", "two ends", 37, "ok,fickle", "lose worker"),
    on_sqs("early-ack", "lost", 8, "ok,slow", "kill worker"),
    on_sqs("lose-fence", "two ends", 37, "ok,fickle", "lose worker"),
]


@pytest.mark.parametrize(("broker", "mutation", "breach", "seconds", "fates", "faults"), MUTATIONS)
def test_a_broken_guarantee_is_noticed(tmp_path, broker, mutation, breach, seconds, fates, faults):
    code, said = chaos(
        tmp_path, "--broker", broker, "--mutation", mutation, "--long", "0",
        "--fates", fates, "--faults", faults, "--patience", "15", seconds=seconds, timeout=140,
    )  # fmt: skip
    assert code == 1, said
    assert summary(tmp_path / broker)["breaches"].get(breach), said


def test_the_same_short_run_without_a_mutation_is_well(tmp_path):
    """Or the tests above would show nothing."""
    code, said = chaos(
        tmp_path, "--broker", "redis", "--faults",
        "kill worker,freeze worker,flood", "--fates",
        "ok,slow,permanent,duplicates,fickle,transient", seconds=30, timeout=140,
    )  # fmt: skip
    assert code == 0, said
