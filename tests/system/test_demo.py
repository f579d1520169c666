"""angzarr demo without any server: it accounts for everything, and says so when it cannot."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import warm_process
from angzarr.demo.run import Run
from angzarr.demo.workers import dead_letter_settings
from angzarr.errors import ConfigurationError

CHECKOUT = Path(__file__).resolve().parents[2]
EXPECTED = re.compile(r"Every pair is accounted for: (\d+) = (\d+) \+ (\d+) \+ (\d+)\.")

#: Runs the command with one message taken away from the broker on its way into a queue.
THIEF = """
import sys
from kombu.transport.memory import Channel
from angzarr.cli.main import main
from angzarr.events.headers import EVENT_ID

honest, stolen = Channel._put, []

def put(self, queue, message, **options):
    if not stolen and str(message["headers"].get(EVENT_ID, "")).endswith(":00007"):
        stolen.append(message)
        return
    honest(self, queue, message, **options)

Channel._put = put
main(sys.argv[1:])
"""


def run(*options, tmp_path, script=None, timeout=300):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    if script is None:
        command = ["angzarr", "demo", *options]
        return warm_process.run(command, environment=environment, timeout=timeout)
    return subprocess.run(
        [sys.executable, "-c", script, "demo", *options],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env=environment,
    )


def test_it_accounts_for_every_pair_and_leaves_nothing_behind(tmp_path):
    done = run("--count", "40", "--seed", "5", tmp_path=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    published, *ends = map(int, EXPECTED.search(done.stdout).groups())
    assert published == sum(ends) > 60
    assert all(ends), "each end should show in the demo"
    assert re.search(r"of them [1-9]\d* by a replay", done.stdout)
    assert list(tmp_path.iterdir()) == []
    assert done.stderr == ""


def test_a_message_that_vanished_is_named_and_the_exit_is_one(tmp_path):
    done = run(
        "--count", "12", "--timeout", "20", "--dir", str(tmp_path / "kept"),
        tmp_path=tmp_path, script=THIEF,
    )  # fmt: skip
    assert done.returncode == 1
    assert "NOT ACCOUNTED FOR (1):" in done.stdout
    assert re.search(r":00007 for \S+ is lost: it never ran", done.stdout)
    (folder,) = (tmp_path / "kept").iterdir()
    journal = sqlite3.connect(folder / "journal.db")
    published = journal.execute("select count(*) from lines where event_id like '%:00007'")
    assert published.fetchone()[0] > 0, "the folder with the evidence is kept"
    journal.close()


def test_one_seed_gives_the_same_ends_every_time(tmp_path):
    ends = [
        EXPECTED.search(run("--count", "12", "--seed", "7", tmp_path=tmp_path).stdout).groups()
        for _ in range(2)
    ]
    assert ends[0] == ends[1]


def test_events_of_a_file_go_to_three_handlers_each(tmp_path):
    file = tmp_path / "events.jsonl"
    lines = [
        {"type": f"shop.{kind}", "data": {"n": number, "sender": {"login": "ann"}}}
        for number in range(8)
        for kind in ("opened", "closed")
    ]
    file.write_text("\n".join(map(json.dumps, lines)))
    done = run("--events", str(file), tmp_path=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "16 events made 48 (event, handler) pairs" in done.stdout


def test_a_line_that_is_no_event_is_named_before_anything_is_published(tmp_path):
    file = tmp_path / "events.jsonl"
    file.write_text('{"type": "a", "data": {}}\n{"typ": "b"}\n')
    done = run("--events", str(file), tmp_path=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: line 2 of ")
    assert len(done.stderr.splitlines()) == 1


def test_a_server_that_is_away_is_named_in_one_sentence(tmp_path):
    away = "redis://:secret@127.0.0.1:1/0"
    done = run("--broker", away, "--dlq", "kafka://127.0.0.1:1", tmp_path=tmp_path)
    assert done.returncode == 1
    assert re.fullmatch(r"Error: the broker at \S+ does not answer .*\n", done.stderr)
    assert "secret" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("dlq", ["redis://:s3cret@h", "s3cret", "spool:///s3cret", "sns_sqs://r"])
def test_a_place_that_the_demo_cannot_use_is_told_with_those_that_it_can(dlq):
    with pytest.raises(ConfigurationError) as caught:
        dead_letter_settings(dlq)
    assert "use channel, kafka://" in str(caught.value)
    assert "sns-sqs://region, pubsub://project" in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert "spool" not in str(caught.value)


def test_a_demo_names_its_own_domains_on_every_server(tmp_path):
    run_ = Run(id="4711", folder=str(tmp_path), broker="memory://", seed=1)
    assert run_.domain("order") == "demo-4711-order", "others' queues are neither read nor removed"


def test_settings_of_another_app_in_the_environment_do_not_count(tmp_path, monkeypatch):
    monkeypatch.setenv("ANGZARR_STORE", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("CELERY_BROKER_URL", "redis://127.0.0.1:1/0")
    done = run("--count", "3", tmp_path=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
