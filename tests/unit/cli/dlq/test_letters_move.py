"""angzarr dlq move, export and import: every letter arrives, or stays where it was."""

from __future__ import annotations

import fcntl
import io
import json
import os
import re
import signal
import stat
import sys
import types
import uuid
from datetime import timedelta

import pytest
from click.testing import CliRunner
from rich.console import Console
from tests.contracts.dead_letters import a_letter, letters_of

from angzarr.adapters.files.spool import FolderOfLetters, Spool
from angzarr.adapters.files.spool_queue import SpoolQueue
from angzarr.adapters.memory.dead_letters import MemoryDeadLetterQueue, channel
from angzarr.adapters.memory.facts import MemoryFactLog
from angzarr.cli.dlq import letters_file as letter_places
from angzarr.cli.dlq import letters_import
from angzarr.cli.dlq import letters_move as letters_view
from angzarr.cli.dlq.letters_move import progress
from angzarr.cli.main import main
from angzarr.clock import SystemClock
from angzarr.dead_letters.codec import Encoded
from angzarr.dead_letters.names import queue_name
from angzarr.dead_letters.queue import RawLetter, TooLarge
from angzarr.errors import DeadLetterQueueUnavailable
from angzarr.facts.act_log import ActLog
from angzarr.settings.dead_letters import DeadLetterSettings
from apps import module_with
from hand_clock import HandClock

FROM = "kafka://user:s3cret@source"
TO = "amqp://user:s3cret@target"


class Impatient(MemoryDeadLetterQueue):
    """A queue in memory that refuses, fails and raises signals when told; it never waits."""

    refuse: dict[str, str]
    before_put = staticmethod(lambda: None)

    def __init__(self, name):
        super().__init__(name)
        self.refuse = {}

    def receive(self, domains, *, limit, wait):
        return super().receive(domains, limit=limit, wait=timedelta(0))

    def put(self, letters):
        self.before_put()
        super().put([one for one in letters if one.id not in self.refuse])
        return [self.refuse.get(one.id) for one in letters]


@pytest.fixture
def queues(monkeypatch):
    """The queues that URLs and the app lead to, by backend; their settings are kept."""
    name = uuid.uuid4().hex
    found = {backend: Impatient(f"{name}-{backend}") for backend in ("kafka", "amqp", "app")}
    found["settings"] = {}

    def open_backend(backend, given, _broker):
        found["settings"][backend] = given
        return found[backend]

    monkeypatch.setattr(letter_places, "open_backend", open_backend)
    clock = HandClock()
    look = timedelta(seconds=1)

    def by_hand(waits):
        def receive(queue, domains, *, limit, wait):
            taken = waits(queue, domains, limit=limit, wait=timedelta(0))
            clock.sleep(timedelta(0) if taken else look)
            return taken

        return receive

    for kind in (Impatient, SpoolQueue):
        monkeypatch.setattr(kind, "receive", by_hand(kind.receive))
    monkeypatch.setattr("angzarr.cli.dlq.letters_move.SystemClock", lambda: clock)
    monkeypatch.setattr("angzarr.cli.dlq.letters_import.SystemClock", lambda: clock)
    return found


@pytest.fixture
def app(queues, monkeypatch):
    app = types.SimpleNamespace(
        settings=types.SimpleNamespace(dlq=DeadLetterSettings(backend="kafka", kafka_brokers="a")),
        broker_url="redis://",
        open_ledger=lambda: None,
        dead_letter_domains=lambda: ["order", "billing"],
        acts=ActLog(facts=MemoryFactLog, clock=SystemClock()),
    )
    app.ops = app
    monkeypatch.setattr(letter_places, "open_unprotected", lambda _given, _url: queues["app"])
    monkeypatch.setitem(sys.modules, "shop_for_test", module_with(app=app))
    return app


@pytest.fixture
def run(queues):
    def call(*arguments, **options):
        words = [str(one) for one in arguments]
        return CliRunner().invoke(main, ["dlq", *words], env={"ANGZARR_APP": ""}, **options)

    return call


@pytest.fixture
def move(run):
    return lambda *more, **options: run(
        "move", "--from", FROM, "--to", TO, "--domain", "order", "--yes", *more, **options
    )


def put_raw(queue, raw):
    shared = channel(next(n for n in _names() if channel(n) is queue._channel))
    with shared.changed:
        shared.queue(queue_name("order")).append(Encoded(raw, "application/json"))


def _names():
    from angzarr.adapters.memory.dead_letters import _CHANNELS

    return list(_CHANNELS)


def left(queue) -> int:
    queue.close()
    return queue.waiting(["order", "billing"])["order"]


# -- move ------------------------------------------------------------------------------------


def test_letters_move_and_the_command_says_how_many(move, queues):
    queues["kafka"].put(letters_of("order", 130))
    result = move()
    assert result.exit_code == 0, result.output
    assert result.stdout == "moved 130 letters: order 130\n"
    assert (left(queues["kafka"]), left(queues["amqp"])) == (0, 130)
    assert "s3cret" not in result.output


def test_secrets_of_a_url_reach_the_backend_and_nothing_else(run, fails, queues):
    output = fails("move", "--from", FROM, "--to", TO, "--domain", "order", input="n\n")
    assert "from kafka://source:9092 to amqp://target:5672/?" in output
    assert "s3cret" not in output
    assert run("export", "--from", FROM, "--domain", "order").exit_code == 0
    given = queues["settings"]["kafka"]
    assert given.plain_kafka_options()["sasl.password"] == "s3cret"


def test_a_source_that_cannot_count_gets_a_running_count(move, queues, monkeypatch):
    monkeypatch.setattr(letters_view, "_NOW_AND_THEN", 0.0)
    source = queues["kafka"]
    source.put(letters_of("order", 130))
    verbs = {name: getattr(source, name) for name in ("receive", "done", "close")}
    queues["kafka"] = types.SimpleNamespace(**verbs)
    result = move()
    assert result.exit_code == 0, result.output
    assert result.stderr == "moving: 100 letters\nmoving: 130 letters\n"
    assert left(source) == 0


def test_json_tells_it_to_programs(move, queues):
    queues["kafka"].put(letters_of("order", 2))
    queues["amqp"].refuse = {"order-1": TooLarge("too large")}
    result = move("--json")
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert told == {
        "carried": 1, "domains": {"order": 1}, "unreadable": 0,
        "kept": {"order-1": "too large"}, "remaining": 0, "stopped": False,
    }  # fmt: skip


def test_what_stays_is_told_with_the_reason_and_fails_the_command(move, queues):
    queues["kafka"].put(letters_of("order", 3))
    queues["amqp"].refuse = {"order-1": "its \x1b[2J queue is full"}
    result = move()
    assert result.exit_code == 1
    assert (
        "1 letters stay where they were:\n  order-1: its \ufffd[2J queue is full" in result.stdout
    )
    assert left(queues["kafka"]) == 1


def test_a_dry_run_takes_nothing_and_says_what_it_found(run, queues):
    queues["kafka"].put([*letters_of("order", 120), a_letter("billing")])
    put_raw(queues["kafka"], b"no letter")
    words = ("move", "--from", FROM, "--to", TO, "--domain", "order", "--domain", "billing")
    result = run(*words, "--dry-run")
    assert result.exit_code == 0, result.output
    assert "would move 122 letters: billing 1, order 121" in result.stdout
    assert "1 of them cannot be read" in result.stdout
    assert (left(queues["kafka"]), left(queues["amqp"])) == (121, 0)
    assert "amqp" not in queues["settings"], "the destination is not even opened"


def test_a_limit_leaves_the_rest(move, queues):
    queues["kafka"].put(letters_of("order", 9))
    assert move("--limit", "4").stdout == "moved 4 letters: order 4\n"
    assert left(queues["kafka"]) == 5


@pytest.mark.parametrize("rate", ["0.05", "fast", "1/m", "-1", "nan"])
def test_a_rate_that_is_none_is_refused(move, rate):
    result = move("--rate", rate)
    assert result.exit_code == 2
    assert "is not a rate" in result.output


@pytest.mark.parametrize("rate", ["50", "50/s", "0.5/s"])
def test_a_rate_is_a_number_a_second(move, queues, rate):
    queues["kafka"].put(letters_of("order", 3))
    assert move("--rate", rate).exit_code == 0


def test_source_and_destination_must_be_two(fails):
    words = ("--domain", "order", "--yes")
    output = fails("move", "--from", FROM, "--to", "kafka://source:9092?group=x", *words, code=2)
    assert "are one place, kafka://source:9092" in output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--from", FROM, "--to", TO), "choose letters with"),
        (("--from", FROM, "--to", TO, "--domain", "a", "--all-domains"), "choose letters with"),
        (("--from", FROM, "--to", TO, "--all-domains"), "no app was named"),
        (("--from", "app", "--to", TO, "--domain", "a"), "no app was named"),
        (("--from", TO, "--to", FROM, "--domain", "a", "--group", "g"), "--group is Kafka's"),
        (("--from", "http://u:s3cret@h", "--to", TO, "--domain", "a"), "http:// does not name a"),
        (("--from", FROM, "--to", TO, "--domain", "a.b", "--domain", "a-b"), "share the queue"),
    ],
)
def test_what_cannot_be_meant_is_one_clear_sentence(run, words, said):
    result = run("move", *words, "--yes")
    assert result.exit_code in {1, 2}
    assert said in " ".join(result.output.split())
    assert "Traceback" not in result.output
    assert "s3cret" not in result.output


def test_a_backend_that_is_not_there_is_one_clear_sentence(monkeypatch):
    monkeypatch.setattr("angzarr.wiring.dead_letters._BACKENDS", {})
    words = ["dlq", "move", "--from", "sqs://r", "--to", TO, "--domain", "order", "--yes"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")
    assert "Traceback" not in result.output


def test_the_apps_queue_and_domains_are_meant_by_name(app, queues):
    queues["app"].put([a_letter("order"), a_letter("billing"), a_letter("other")])
    words = ["-A", "shop_for_test", "dlq", "move", "--from", "app", "--to", TO]
    result = CliRunner().invoke(main, [*words, "--all-domains", "--yes"])
    assert result.stdout == "moved 2 letters: billing 1, order 1\n", result.output
    result = CliRunner().invoke(main, [*words[:-1], "kafka://a:9092", "--all-domains", "--yes"])
    assert "are one place" in result.output


@pytest.mark.parametrize("target", ["kafka://a:9092", "amqp://b"])
def test_every_queue_of_an_apps_chain_is_the_apps(app, target):
    chain = {"targets": ("kafka", "amqp"), "kafka_brokers": "a", "amqp_url": "amqp://u:s3cret@b"}
    app.settings.dlq = DeadLetterSettings(**chain)
    words = ["-A", "shop_for_test", "dlq", "move", "--from", "app", "--domain", "order", "--yes"]
    result = CliRunner().invoke(main, [*words, "--to", target])
    assert result.exit_code == 2
    assert "are one place" in result.output


def test_a_group_of_ones_own_reads_kafka_for_itself(move, queues):
    assert move("--group", "mine").exit_code == 0
    assert queues["settings"]["kafka"].kafka_group == "mine"
    assert move().exit_code == 0
    assert queues["settings"]["kafka"].kafka_group == "angzarr-dlq-analysis"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_after_the_batch_in_hand(move, queues, number):
    queues["kafka"].put(letters_of("order", 250))
    queues["amqp"].before_put = lambda: os.kill(os.getpid(), number)
    before = signal.getsignal(number)
    result = move()
    assert result.exit_code == 1
    assert "moved 100 letters: order 100\nstopped; run it again" in result.stdout
    assert (left(queues["kafka"]), left(queues["amqp"])) == (150, 100)
    assert signal.getsignal(number) is before


def test_a_destination_that_stays_away_is_told_with_what_was_done(move, queues):
    queues["kafka"].put(letters_of("order", 150))
    calls = iter([True])

    def away():
        if not next(calls, False):
            raise DeadLetterQueueUnavailable("RabbitMQ is away")

    queues["amqp"].before_put = away
    result = move()
    assert result.exit_code == 1
    assert "moved 100 letters" in result.stdout
    assert "Error: RabbitMQ is away" in result.output
    assert left(queues["kafka"]) == 50


def test_letters_in_other_hands_are_told(move, queues):
    queues["kafka"].waiting = lambda _domains: {"order": 7}
    result = move()
    assert result.exit_code == 1
    assert "about 7 letters are still there" in result.stdout


# -- export ----------------------------------------------------------------------------------


@pytest.fixture
def export(run, tmp_path):
    file = tmp_path / "letters.jsonl"
    return lambda *more: run("export", "--from", FROM, "--domain", "order", "--to", file, *more)


def test_an_export_leaves_the_letters_where_they_are(export, queues, tmp_path):
    queues["kafka"].put(letters_of("order", 120))
    result = export()
    assert result.exit_code == 0, result.output
    assert result.stdout == "exported 120 letters: order 120\n"
    file = tmp_path / "letters.jsonl"
    assert len(file.read_bytes().splitlines()) == 120
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert left(queues["kafka"]) == 120


def test_a_drain_takes_away_what_is_on_the_disk(export, queues, tmp_path, monkeypatch):
    queues["kafka"].put(letters_of("order", 3))
    order = []
    sync, done = os.fsync, queues["kafka"].done
    monkeypatch.setattr(os, "fsync", lambda number: order.append("fsync") or sync(number))
    queues["kafka"].done = lambda receipts: order.append("done") or done(receipts)
    assert export("--drain").exit_code == 0
    assert order[-2:] == ["fsync", "done"]
    assert left(queues["kafka"]) == 0


def test_standard_output_gets_the_lines_and_nothing_else(run, fails, queues):
    queues["kafka"].put(letters_of("order", 2))
    result = run("export", "--from", FROM, "--domain", "order")
    assert [json.loads(line)["domain"] for line in result.stdout.splitlines()] == ["order"] * 2
    assert "exported 2 letters" in result.stderr
    assert "need a file" in fails("export", "--from", FROM, "--domain", "order", "--drain", code=2)


def test_a_file_that_exists_is_never_written_over(export, queues, tmp_path):
    file = tmp_path / "letters.jsonl"
    file.write_text("mine\n")
    queues["kafka"].put([a_letter("order")])
    result = export("--drain")
    assert result.exit_code == 1
    assert "it exists" in result.output
    assert file.read_text() == "mine\n"
    assert left(queues["kafka"]) == 1
    assert export("--append", "--drain").exit_code == 0
    assert file.read_text().startswith('mine\n{"domain": "order"')


@pytest.mark.parametrize(
    ("before", "kept"),
    [
        (b'{"domain": "a"}\n{"domain": "order", "content_ty', b'{"domain": "a"}\n'),
        (b'{"dom', b""),
        (b"somebody's text", b"somebody's text\n"),
        (b'{"domain": "x"' + b"x" * 3_000_000, b""),
        (b"", b""),
    ],
)
def test_half_a_line_of_a_killed_export_goes_and_anothers_text_stays(
    export, queues, tmp_path, before, kept
):
    file = tmp_path / "letters.jsonl"
    file.write_bytes(before)
    queues["kafka"].put([a_letter("order")])
    assert export("--append", "--drain").exit_code == 0
    written = file.read_bytes()
    assert written.startswith(kept)
    assert json.loads(written[len(kept) :])["letter"]["metadata"]["letter_id"] == "order-0"


def test_a_disk_that_is_full_keeps_the_letters_in_their_queue(
    export, queues, tmp_path, monkeypatch
):
    queues["kafka"].put(letters_of("order", 3))

    def full(_number):
        raise OSError(28, "No space left on device")

    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda number: sync(number) if _is_folder(number) else full(0))
    result = export("--drain")
    assert result.exit_code == 1
    assert "letters.jsonl cannot be written: No space left on device" in result.output
    assert left(queues["kafka"]) == 3
    assert (tmp_path / "letters.jsonl").read_bytes() == b""


def test_a_device_that_takes_nothing_keeps_the_letters_in_their_queue(fails, queues):
    queues["kafka"].put(letters_of("order", 3))
    words = ("export", "--from", FROM, "--domain", "order", "--to", "/dev/full")
    output = fails(*words, "--append", "--drain")
    assert "Error: /dev/full cannot be written: No space left on device" in output
    assert left(queues["kafka"]) == 3


def _is_folder(number):
    return stat.S_ISDIR(os.fstat(number).st_mode)


def test_two_exports_do_not_write_one_file(export, tmp_path):
    file = tmp_path / "letters.jsonl"
    with file.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        result = export("--append")
    assert result.exit_code == 1
    assert "another export writes it" in result.output


# -- spool -----------------------------------------------------------------------------------


@pytest.fixture
def spool(tmp_path):
    spool = Spool(tmp_path / "spool", max_bytes=2**30)
    spool.prepare()
    return spool


def spooled(folder):
    found = FolderOfLetters(folder)
    return [found.read(one) for one in found.waiting()]


def test_letters_of_a_spool_move_to_a_queue_with_those_that_cannot_be_read(
    run, queues, tmp_path, spool
):
    spool.put([*letters_of("order", 130), a_letter("billing")])
    spool.put_raw([RawLetter(domain="order", raw=b"no letter", content_type="text/odd")])
    words = ("move", "--from", f"spool://{tmp_path}/spool", "--to", TO, "--domain", "order")
    dry = run(*words, "--dry-run")
    assert dry.stdout.startswith("would move 131 letters: order 131\n1 of them cannot be read")
    assert len(spooled(tmp_path / "spool")) == 132
    result = run(*words, "--yes")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("moved 131 letters: order 131\n1 of them cannot be read")
    assert spooled(tmp_path / "spool") == [a_letter("billing")]
    assert left(queues["amqp"]) == 131


def test_letters_of_a_queue_move_into_a_spool_until_it_is_full(run, queues, tmp_path):
    queues["kafka"].put(letters_of("order", 3))
    put_raw(queues["kafka"], b"no letter")
    folder = tmp_path / "new" / "spool"
    words = ("move", "--from", FROM, "--domain", "order", "--yes", "--to")
    assert run(*words, f"spool://{folder}").exit_code == 0
    assert len(spooled(folder)) == 4
    queues["kafka"].put(letters_of("order", 3))
    result = run(*words, f"spool://{folder}?max_bytes=5000")
    assert result.exit_code == 1
    assert "is full" in result.stdout
    assert left(queues["kafka"]) > 0


def test_a_spool_is_exported_and_imported(run, queues, tmp_path, spool):
    spool.put(letters_of("order", 3))
    file, other = tmp_path / "letters.jsonl", tmp_path / "other"
    words = ("export", "--from", f"spool://{tmp_path}/spool", "--domain", "order", "--to", file)
    assert run(*words, "--drain").exit_code == 0
    assert spooled(tmp_path / "spool") == []
    assert run("import", file, "--to", f"spool://{other}").stdout == "imported 3 letters\n"
    assert spooled(other) == letters_of("order", 3)


def test_a_damaged_file_of_a_spool_stays_and_fails_the_command(run, queues, tmp_path, spool):
    spool.put(letters_of("order", 2))
    damaged = min((tmp_path / "spool").glob("*.letter"))
    damaged.write_bytes(b"x")
    words = ("move", "--from", f"spool://{tmp_path}/spool", "--to", TO, "--domain", "order")
    result = run(*words, "--yes")
    assert result.exit_code == 1
    assert f"1 letters stay where they were:\n  {damaged.name}: the file does" in result.stdout
    assert left(queues["amqp"]) == 1
    assert damaged.read_bytes() == b"x"


def test_a_spool_that_is_not_there_is_one_clear_sentence(fails, tmp_path):
    words = ("move", "--from", f"spool://{tmp_path}/none", "--to", TO, "--domain", "order")
    output = fails(*words, "--yes")
    assert "none cannot be used: no such file or directory" in output
    assert "Traceback" not in output


def test_an_apps_own_spool_and_its_queue_are_one_place(app, tmp_path):
    app.settings.dlq = DeadLetterSettings(
        targets=("kafka", "spool"),
        kafka_brokers="a",
        spool={"path": str(tmp_path), "durable": True},
    )
    words = ["-A", "shop_for_test", "dlq", "move", "--domain", "order", "--yes"]
    for places in (("spool://" + str(tmp_path), "app"), ("app", "spool://" + str(tmp_path))):
        result = CliRunner().invoke(main, [*words, "--from", places[0], "--to", places[1]])
        assert result.exit_code == 2
        assert "letters would go round for ever" in " ".join(result.output.split())
        assert "`angzarr dlq spool forward`" in " ".join(result.output.split())


# -- import ----------------------------------------------------------------------------------


@pytest.fixture
def exported(export, queues, tmp_path):
    """A file with 250 letters and one that cannot be read, in line 251."""
    queues["kafka"].put(letters_of("order", 250))
    put_raw(queues["kafka"], b"no letter")
    assert export("--drain").exit_code == 0
    return tmp_path / "letters.jsonl"


def test_an_import_puts_every_letter_and_leaves_no_note(run, queues, exported):
    result = run("import", exported, "--to", TO)
    assert result.exit_code == 0, result.output
    assert result.stdout == "imported 251 letters\n"
    assert left(queues["amqp"]) == 251
    assert [one.name for one in exported.parent.iterdir()] == ["letters.jsonl"]


def test_standard_input_is_imported(run, queues, exported):
    result = run("import", "-", "--to", TO, "--json", input=exported.read_bytes())
    assert json.loads(result.stdout) == {
        "imported": 251, "refused": {}, "unread": {}, "stopped": False
    }  # fmt: skip


def test_lines_that_cannot_be_read_are_told_by_number_and_the_rest_goes_on(
    run, queues, exported, monkeypatch
):
    whole = exported.read_bytes().splitlines(keepends=True)
    monkeypatch.setattr("angzarr.cli.dlq.letters_file.MAX_LINE", 10_000)
    monkeypatch.setattr("angzarr.cli.dlq.letters_file._CHUNK", 1_000)
    odd = [b"\n", b"no line\n", b"x" * 25_000 + b"\n", *whole[:2], b'{"domain": "or']
    exported.write_bytes(b"".join(odd))
    result = run("import", exported, "--to", TO)
    assert result.exit_code == 1
    assert "imported 2 letters\n3 lines cannot be read:\n  line 2: it is not JSON" in result.stdout
    assert "line 3: it is longer than" in result.stdout
    assert "line 6: it is not JSON" in result.stdout
    assert not exported.with_name("letters.jsonl.done").exists()


def test_an_import_that_is_stopped_goes_on_where_it_was(run, queues, exported):
    queues["amqp"].before_put = lambda: os.kill(os.getpid(), signal.SIGTERM)
    assert "imported 100 letters\nstopped" in run("import", exported, "--to", TO).stdout
    queues["amqp"].before_put = lambda: None
    assert run("import", exported, "--to", TO).stdout == "imported 151 letters\n"
    assert left(queues["amqp"]) == 251


@pytest.mark.parametrize("kill", ["put", "note"])
def test_an_import_that_is_killed_anywhere_loses_nothing(run, queues, exported, monkeypatch, kill):
    class Killed(BaseException):
        pass

    def die(*_):
        raise Killed

    with monkeypatch.context() as patch:
        if kill == "note":
            patch.setattr(letters_import.FilePosition, "reach", die)
        else:
            patch.setattr(Impatient, "put_raw", die)
        with pytest.raises(Killed):
            run("import", exported, "--to", TO, catch_exceptions=False)
    assert run("import", exported, "--to", TO).exit_code == 0
    queue = queues["amqp"]
    queue.close()
    found = queue.receive(["order"], limit=999, wait=timedelta(0))
    assert len({one.letter and one.letter.id for one in found}) == 251


def test_lines_that_were_refused_are_tried_again_by_the_next_run(run, queues, exported):
    queues["amqp"].refuse = {"order-120": "full"}
    result = run("import", exported, "--to", TO)
    assert result.exit_code == 1
    assert "1 lines were refused:\n  line 121: full" in result.stdout
    queues["amqp"].refuse = {}
    assert run("import", exported, "--to", TO).stdout == "imported 151 letters\n"
    assert not exported.with_name("letters.jsonl.done").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda file, note: file.write_bytes(b"other" + file.read_bytes()), "belongs to another"),
        (lambda file, note: file.write_bytes(file.read_bytes()[:9000]), "belongs to another"),
        (lambda file, note: note.write_text("{"), "is not the position"),
        (lambda file, note: note.write_text('{"line": "x"}'), "is not the position"),
    ],
)
def test_a_note_that_does_not_fit_is_refused(run, fails, queues, exported, change, said):
    queues["amqp"].before_put = lambda: os.kill(os.getpid(), signal.SIGTERM)
    run("import", exported, "--to", TO)
    change(exported, exported.with_name("letters.jsonl.done"))
    assert said in fails("import", exported, "--to", TO)


def test_a_note_of_another_destination_is_refused(run, queues, exported):
    queues["amqp"].before_put = lambda: os.kill(os.getpid(), signal.SIGTERM)
    run("import", exported, "--to", TO)
    result = run("import", exported, "--to", "kafka://elsewhere")
    assert "an import to amqp://target:5672/ began" in result.output


def test_a_file_that_is_not_there_is_one_clear_sentence(fails, tmp_path):
    assert "none cannot be read: No such file" in fails("import", tmp_path / "none", "--to", TO)


# -- how it goes ---------------------------------------------------------------------------------


#: What a terminal acts on.
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def terminal(monkeypatch):
    """A terminal, and what it was written."""
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=100)
    monkeypatch.setattr(letters_view, "Console", lambda **_options: console)
    return written


@pytest.mark.parametrize(("total", "said"), [(None, "120/?"), (500, "120/500"), (100, "120/120")])
def test_a_terminal_shows_a_bar_or_a_running_count(terminal, total, said):
    with progress("moving", total, bar=True) as tell:
        tell(40)
        tell(120)
    assert said in CONTROL.sub("", terminal.getvalue())


@pytest.mark.parametrize(
    ("total", "said"),
    [
        (None, "moving: 40 letters\nmoving: 120 letters\n"),
        (100, "moving: 40 of about 100 letters\nmoving: 120 of about 120 letters\n"),
    ],
)
def test_elsewhere_a_line_tells_the_count_now_and_then(monkeypatch, capsys, total, said):
    monkeypatch.setattr(letters_view, "_NOW_AND_THEN", 0.0)
    with progress("moving", total, bar=True) as tell:
        tell(40)
        tell(120)
    assert capsys.readouterr().err == said


def test_what_takes_no_time_needs_no_line(capsys):
    with progress("moving", None, bar=True) as tell:
        tell(120)
    assert capsys.readouterr().err == ""
