from __future__ import annotations

import io
import json
import os
import signal
import threading
import time
import types
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner
from rich.console import Console
from tests.contracts.ledger import HOLD, letter_of, message_of, resolve
from tests.unit.cli.ledger_app import held, one_by_one
from tests.unit.dead_letters.test_protection import CIPHER, SIGN, protection, secret_letter

from angzarr import __version__
from angzarr.adapters.celery.publish.body_offloader import BodyOffloader
from angzarr.adapters.cryptography.xaes import XaesCipher
from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.ledger.failure import Unreadable
from angzarr.analysis.ledger.ledger import Decided
from angzarr.cli.dlq.entries import entries_table
from angzarr.cli.main import main
from angzarr.cli.terminal import SHORT_ID
from angzarr.clock import SystemClock
from angzarr.dead_letters.codec import decode, read_receipt
from angzarr.dead_letters.protection import Clearance
from angzarr.dead_letters.record import ForeignRecord
from angzarr.dead_letters.replay_outcome import ReplayOutcome
from angzarr.dead_letters.sealed_letters import SealedLetters
from angzarr.errors import LedgerUnavailable, PayloadStoreUnavailable
from angzarr.events import headers as names
from angzarr.payloads.body_sealer import SEALED, BodyKeys, BodySealer
from memory_payloads import MemoryPayloadStore
from polling import PATIENCE

# -- finding the app -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no app was named"),
        (["-A", "no_such_module_here"], "there is no module 'no_such_module_here'"),
        (["-A", "json"], "module 'json' has no Celery app"),
        (["-A", "json:loads"], "'json:loads' is a function and not an Angzarr app"),
    ],
)
def test_app_that_is_not_found_is_one_clear_sentence(arguments, said):
    result = CliRunner().invoke(main, [*arguments, "dlq", "list"], env={"ANGZARR_APP": ""})
    assert result.exit_code == 2
    assert said in result.output
    assert "Traceback" not in result.output


def test_app_may_be_named_with_its_attribute_or_in_the_environment(app):
    for arguments, env in (
        (["-A", "shop_for_test:app"], {}),
        ([], {"ANGZARR_APP": "shop_for_test"}),
    ):
        result = CliRunner().invoke(main, [*arguments, "dlq", "stats"], env=env)
        assert result.exit_code == 0, result.output


def test_version_and_help_need_no_app():
    assert __version__ in CliRunner().invoke(main, ["--version"]).output
    assert "dlq" in CliRunner().invoke(main, ["--help"]).output


def test_unknown_command_is_refused():
    assert CliRunner().invoke(main, ["fly"]).exit_code == 2


def test_ledger_away_is_one_clear_sentence(app, run, tmp_path):
    app.url = f"sqlite:///{tmp_path / 'no folder' / 'ledger.db'}"
    result = run("dlq", "list")
    assert result.exit_code == 1
    assert result.output.startswith("Error: the database")
    assert "ledger.db" in result.output


# -- list, show, stats -----------------------------------------------------------------------


def test_list_shows_entries_and_filters_them(app, ledger, run):
    entry = held(ledger)
    held(ledger, "e2", handler="mail.send")
    output = run("dlq", "list").output
    assert entry.id[:12] in output
    assert "code_defect" in output
    assert "mail.send" in output
    assert "mail.send" not in run("dlq", "list", "--handler", "orders.sync").output
    assert "no entries" in run("dlq", "list", "--status", "resolved").output
    assert "e1" in run("dlq", "list", "--class", "code_defect", "--since", "2020-01-01").output
    assert "no entries" in run("dlq", "list", "--until", "2020-01-01").output


def test_narrow_terminal_cuts_neither_id_nor_status_nor_time(ledger):
    entry = ledger.add_failed_event(letter_of(error_message="a long message " * 20))
    shown = Console(width=80, file=io.StringIO())
    shown.print(entries_table([entry], {}, narrow=True))
    text = shown.file.getvalue()
    for whole in (entry.id[:SHORT_ID], entry.status, "orders.sync", ":00:00"):
        assert whole in text


def test_times_are_shown_as_the_filters_take_them(ledger, run, monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        ledger.add_failed_event(letter_of())  # failed at 12:00 UTC
        assert "2026-01-01 07:00:00" in run("dlq", "list").output
        assert "no entries" not in run("dlq", "list", "--since", "2026-01-01 07:00:00").output
        assert "no entries" in run("dlq", "list", "--until", "2026-01-01 07:00:00").output
    finally:
        monkeypatch.undo()
        time.tzset()


def test_list_pages_through_json(app, ledger, run):
    for number in range(3):
        held(ledger, f"e{number}")
    first = json.loads(run("dlq", "list", "--json", "--limit", "2").output)
    rest = json.loads(run("dlq", "list", "--json", "--after", first["next"]).output)
    found = {entry["event_id"] for entry in first["entries"] + rest["entries"]}
    assert found == {"e0", "e1", "e2"}
    assert rest["next"] is None


def test_malformed_cursor_is_refused(app, fails):
    assert "not a cursor" in fails("dlq", "list", "--after", "nonsense", code=2)


def test_show_prints_everything_known(app, ledger, run):
    entry = held(ledger)
    output = run("dlq", "show", entry.id[:12]).output
    for part in (entry.id, "a bug", "TimeoutError", "orders.py", '"total": 3', "held", "acme"):
        assert part in output


def test_show_prints_a_long_message_whole_and_once(app, ledger, run):
    message = "\n".join("y" * 100 for _ in range(50))
    entry = held(ledger, error_message=message, explanation=f"failed 5 times; last: {message}")
    output = run("dlq", "show", entry.id).output
    assert 5_000 < output.count("y") < 6_000
    assert "failed 5 times; last: yyyy" in output


def test_show_json_has_the_names_of_the_spec(app, ledger, run):
    entry = held(ledger)
    shown = json.loads(run("dlq", "show", entry.id, "--json").output)
    for name in (
        "event_id", "handler_name", "projection_name", "event_type", "event_data", "error_type",
        "error_message", "error_stacktrace", "retry_count", "first_failed_at", "last_failed_at",
        "context", "status",
    ):  # fmt: skip
        assert name in shown
    assert shown["event_data"] == {"total": 3}
    assert [line["what"] for line in shown["history"]] == ["failed", "held"]
    assert shown["message"]["headers"]["task"] == "orders.sync"


def test_show_says_whether_a_letter_can_be_trusted_and_opened(app, ledger, run):
    entry = held(ledger)
    assert json.loads(run("dlq", "show", entry.id, "--json").output)["protection"] == {}
    app.clear = Clearance(signatures=SIGN, cipher=CIPHER)
    assert "unsigned" in run("dlq", "show", entry.id).output
    sealed = ledger.add_failed_event(protection(signatures=SIGN)(secret_letter(handler="a")))
    output = run("dlq", "show", sealed.id).output
    assert "valid, key s1" in output
    assert "key k2" in output
    assert "hunter2" not in output
    shown = json.loads(run("dlq", "show", sealed.id, "--json").output)
    assert shown["protection"] == {"signature": "valid, key s1", "sealed": "key k2"}
    assert shown["event_data"] == {"user": "ann", "password": "[redacted]"}
    forged = ledger.add_failed_event(replace(SIGN.sign(letter_of()), handler="b"))
    assert "forged, key s1" in run("dlq", "show", forged.id).output


def test_replay_refuses_a_forged_letter(app, ledger, run):
    app.clear = Clearance(signatures=SIGN)
    signed = SIGN.sign(letter_of())
    good = ledger.add_failed_event(signed)
    forged = ledger.add_failed_event(replace(signed, handler="other"))
    for entry in (good, forged):
        ledger.decide([Decided(entry_id=entry.id, revision=1, decision=HOLD)], by="me")
    for more in (["--dry-run"], ["--yes"]):
        answer = run("dlq", "replay", good.id, forged.id, "--now", "--json", *more)
        problems = {one["id"]: one["problem"] for one in json.loads(answer.output)}
        assert problems[good.id] is None
        assert "forged or changed" in problems[forged.id]
        assert answer.exit_code == 1
    assert len(app.publisher.sent) == 1


def test_json_of_another_program_is_shown_whole(ledger, run):
    raw = b'{"order_id": "o-777", "iban": "DE00"}'
    receipt = read_receipt("order", raw, "application/json", None)
    foreign = Unreadable(
        domain="order", raw=raw, content_type="application/json", problem=receipt.problem,
        received_at=datetime.now(UTC),
    )  # fmt: skip
    (entry,) = ledger.add_failed_events([receipt.letter or foreign])
    assert raw.decode() in run("dlq", "show", entry.id).output
    assert (
        json.loads(run("dlq", "show", entry.id, "--json").output)["message"]["raw"] == raw.decode()
    )


def test_all_that_a_letter_of_others_holds_is_shown(ledger, run):
    data = {"rejectionReason": "refused by the till", "till": {"receipt": 9}}
    letter = decode(json.dumps(data).encode(), "application/json")
    (entry,) = ledger.add_failed_events([replace(letter, domain="order")])
    assert '"receipt": 9' in run("dlq", "show", entry.id).output
    told = json.loads(run("dlq", "show", entry.id, "--json").output)["message"]
    assert json.loads(told["envelope"])["till"] == {"receipt": 9}


def test_unreadable_letter_is_shown_in_both_forms(app, ledger, run):
    broken = Unreadable(
        domain="order", raw=b"\xff{", content_type="", problem="no letter",
        received_at=SystemClock().now(),
    )  # fmt: skip
    entry = ledger.add_failed_event(broken)
    assert "\\xff{" in run("dlq", "show", entry.id).output
    assert (
        json.loads(run("dlq", "show", entry.id, "--json").output)["message"]["raw"] == "base64:/3s="
    )


def test_what_carried_a_record_of_others_is_shown_in_both_forms(ledger, run):
    record = ForeignRecord(
        broker="kafka",
        place={"topic": "dlq", "partition": 0, "offset": 94},
        is_unique=True,
        key=b"customer-1",
        headers=(
            ("__connect.errors.topic", b"orders"),
            ("__connect.errors.exception.message", b"no such column"),
            ("__connect.errors.exception.stacktrace", b"at Sink.java:7"),
            ("bytes", b"\xff"),
        ),
    )
    entry = ledger.add_failed_event(
        Unreadable(
            domain="order", raw=b"", content_type="", problem="no letter", record=record,
            received_at=SystemClock().now(),
        )
    )  # fmt: skip
    shown = run("dlq", "show", entry.id).output
    for said in ("customer-1", "no such column", "topic orders", "Kafka Connect", "at Sink.java:7"):
        assert said in shown
    told = json.loads(run("dlq", "show", entry.id, "--json").output)
    assert told["message"]["record"]["key"] == "customer-1"
    assert told["message"]["record"]["headers"][-1] == ["bytes", {"$bytes": "/w=="}]
    assert told["message"]["record"]["place"]["offset"] == 94
    assert told["context"]["given_up_by"] == "Kafka Connect"


def test_what_came_from_outside_is_shown_not_obeyed(app, ledger, run):
    entry = held(ledger, error_message="[red]gone[/red] \x1b[2J \x07")
    for arguments in (("list",), ("show", entry.id)):
        output = run("dlq", *arguments).output
        assert "[red]gone[/red]" in output
        assert "\x1b" not in output
        assert "\x07" not in output


@pytest.mark.parametrize(
    ("entry", "said"), [("ffffffffff", "there is no entry 'ffffffffff'"), ("abc", "too short")]
)
def test_entry_that_is_not_found_is_one_clear_sentence(app, run, entry, said):
    for command in ("show", "replay"):
        result = run("dlq", command, entry)
        assert result.exit_code in {1, 2}
        assert said in result.output


def test_stats_count_entries(app, ledger, run):
    held(ledger)
    assert "held" in run("dlq", "stats").output
    counted = json.loads(run("dlq", "stats", "--json").output)
    assert (counted["total"], counted["by_status"]) == (1, {"held": 1})


# -- replay ----------------------------------------------------------------------------------


def test_replay_sends_the_entry_and_tells_who_did_it(app, ledger, run):
    entry = held(ledger)
    result = run("dlq", "replay", entry.id[:12], "--yes")
    assert result.exit_code == 0, result.output
    (message,) = app.publisher.sent
    assert message.headers[names.REPLAY] == 1
    detail = ledger.open(entry.id)
    assert (detail.entry.status, detail.entry.replays) == (Status.RETRYING, 1)
    assert detail.entry.published_at is not None
    (begun,) = [line for line in detail.history if line.what == "retrying"]
    assert "@" in begun.who


def test_dry_run_changes_nothing(app, ledger, run):
    entry = held(ledger)
    result = run("dlq", "replay", "--status", "held", "--dry-run")
    assert "would be replayed" in result.output
    assert not app.publisher.sent
    assert ledger.open(entry.id).entry == entry


def test_replay_asks_first_and_takes_no_for_an_answer(app, ledger, fails):
    entry = held(ledger)
    assert "Replay 1 entry?" in fails("dlq", "replay", entry.id, input="n\n")
    assert not app.publisher.sent


def test_filter_replays_all_it_finds_that_can_be_replayed(app, ledger, run):
    for number in range(3):
        held(ledger, f"e{number}")
    resolve(ledger, held(ledger, "done").id, "ann")
    result = run("dlq", "replay", "--class", "code_defect", "--now", "--yes", "--json")
    assert result.exit_code == 0, result.output
    assert {one["event_id"] for one in json.loads(result.output)} == {"e0", "e1", "e2"}
    assert len(app.publisher.sent) == 3


def test_limit_bounds_a_filter(app, ledger, run):
    *oldest, newest = one_by_one(ledger, 3)
    asked = ("dlq", "replay", "--status", "held", "--limit", "2", "--now", "--yes", "--json")
    dry = run(*asked, "--dry-run")
    done = run(*asked)
    shown, sent = ([one["id"] for one in json.loads(it.output)] for it in (dry, done))
    assert shown == sent == [one.id for one in oldest]
    assert len(app.publisher.sent) == 2
    assert ledger.open(newest.id).entry == newest


def test_a_limit_bounds_entries_by_id_too(app, ledger, run):
    entries = one_by_one(ledger, 3)
    named = [one.id for one in reversed(entries)]
    run("dlq", "replay", *named, "--limit", "2", "--now", "--yes")
    assert [ledger.open(one.id).entry.replays for one in entries] == [1, 1, 0]


@pytest.mark.parametrize("arguments", [[], ["abcdefabcdef", "--status", "held"]])
def test_replay_must_be_told_which(app, fails, arguments):
    assert "say which" in fails("dlq", "replay", *arguments, code=2)


def test_what_cannot_be_replayed_says_why_and_fails_the_command(app, ledger, fails):
    task = held(ledger, message=message_of(task="os.system"))
    done = held(ledger, "e2")
    resolve(ledger, done.id, "ann")
    output = fails("dlq", "replay", task.id, done.id, "--now", "--yes")
    assert "no handler is registered as 'os.system'" in output
    assert "the entry is resolved" in output
    assert not app.publisher.sent


@pytest.mark.parametrize("stopped_by", [LedgerUnavailable("away"), KeyboardInterrupt()])
def test_who_is_stopped_half_way_is_told_what_was_sent(app, ledger, run, stopped_by):
    entries = [held(ledger, event_id) for event_id in ("e1", "e2")]

    def stop(_message):
        if len(app.publisher.sent) == 2:
            raise stopped_by

    app.publisher.on_publish = stop
    done = run("dlq", "replay", *(one.id for one in entries), "--now", "--yes", "--json")
    assert done.exit_code == 1
    (sent,) = json.JSONDecoder().raw_decode(done.stdout)[0]
    assert (sent["id"], sent["problem"]) == (entries[0].id, None)


def test_broker_away_leaves_the_replay_to_the_worker(app, ledger, fails):
    entry = held(ledger)
    app.publisher.away = True
    assert "the analysis worker sends it" in fails("dlq", "replay", entry.id, "--yes")
    assert ledger.open(entry.id).entry.status is Status.RETRYING


def test_a_body_in_the_payload_store_is_named_and_fetched_for_its_replay(app, ledger, run):
    app.payloads = MemoryPayloadStore()
    letter = letter_of()
    reference = app.payloads.put(letter.message.body)
    entry = held(ledger, message=replace(letter.message, body=b""), payload=reference)
    assert f"kept at {reference.uri}" in run("dlq", "show", entry.id).output
    shown = json.loads(run("dlq", "show", entry.id, "--json").output)
    assert shown["message"]["payload"]["sha256"] == reference.sha256
    assert shown["message"]["payload"]["size"] == len(letter.message.body)
    assert run("dlq", "replay", entry.id, "--yes").exit_code == 0
    (message,) = app.publisher.sent
    assert message.body == letter.message.body


def test_a_body_that_is_too_large_to_be_shown_is_replayed_all_the_same(app, ledger, run):
    app.payloads = MemoryPayloadStore()
    app.settings.dlq.payloads.largest_opened = 3
    letter = letter_of()
    held(ledger, payload=app.payloads.put(letter.message.body))
    (entry,) = ledger.get_failed_events(status=None).entries
    assert run("dlq", "replay", entry.id, "--yes").exit_code == 0
    assert app.publisher.sent


def test_a_body_that_is_too_large_is_not_opened_for_a_person(app, ledger, fails):
    app.payloads = MemoryPayloadStore()
    app.settings.dlq.payloads.largest_opened = 3
    entry = held(ledger, payload=app.payloads.put(b"four"))
    app.payloads.fetch = None
    output = fails("dlq", "edit", entry.id, "--file", "-", "--yes", input="{}")
    assert "dlq.payloads.largest_opened" in output
    assert ledger.open(entry.id).entry == entry


def test_data_that_came_encrypted_are_shown_when_asked_to_and_with_their_key(
    app, ledger, run, fails
):
    sealer = BodySealer(keys=BodyKeys(keys={"k1": b"k" * 32}, current="k1"), cipher=XaesCipher())
    letter = letter_of()
    message = BodyOffloader(None, 1000, sealer=sealer, seals_all=True).sealed(letter.message)
    entry = held(ledger, message=message, event=replace(letter.event, data=SEALED))
    shown = run("dlq", "show", entry.id).output
    assert "[sealed]" in shown
    assert "key k1" in shown
    assert "total" not in shown.partition("payload")[2]
    assert "key 'k1', which is not among" in fails("dlq", "show", entry.id, "--open")
    app.bodies = SealedLetters(sealer=sealer)
    opened = json.loads(run("dlq", "show", entry.id, "--open", "--json").output)
    assert opened["event_data"] == {"total": 3}
    assert '"total": 3' in run("dlq", "show", entry.id, "--open").output


def test_a_payload_store_that_is_away_begins_no_replay(app, ledger, fails):
    app.payloads = MemoryPayloadStore()
    entry = held(ledger, payload=app.payloads.put(b"x"))

    def away(_reference):
        raise PayloadStoreUnavailable("the payload store is away")

    app.payloads.fetch = away
    output = fails("dlq", "replay", entry.id, "--yes")
    assert "not begun, replay it when its payload can be had" in output
    assert ledger.open(entry.id).entry == entry


def test_a_body_elsewhere_without_a_payload_store_is_told_by_a_dry_run(app, ledger, run):
    entry = held(ledger, payload=MemoryPayloadStore().put(b"x"))
    result = run("dlq", "replay", entry.id, "--dry-run")
    assert "has no dlq.payloads.url: set it" in " ".join(result.output.split())


# -- analyze ---------------------------------------------------------------------------------


def test_analyze_runs_the_whole_loop_until_sigterm(app, ledger, run):
    """What another process left in the spool is forwarded meanwhile."""
    app.queue.put([letter_of()])
    app.forwarder = types.SimpleNamespace(
        start=lambda: calls.append("begun"), end=lambda: calls.append("ended")
    )
    calls: list[str] = []

    def answer(message):
        outcome = ReplayOutcome(
            letter_id=message.headers[names.LETTER_ID], replay=1, outcome="handled",
            handler="orders.sync", event_id="e1",
        )  # fmt: skip
        app.outcomes.waiting.append(outcome)

    app.publisher.on_publish = answer

    def stop_when_resolved():
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if ledger.get_failed_events(status=Status.RESOLVED).entries:
                break
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    watcher = threading.Thread(target=stop_when_resolved)
    watcher.start()
    before = signal.getsignal(signal.SIGTERM)
    result = run("dlq", "analyze")
    watcher.join()
    assert result.exit_code == 0, result.output
    assert "reads order" in result.output
    (entry,) = ledger.get_failed_events(status=Status.RESOLVED).entries
    assert (entry.resolved_by, entry.replays) == ("replay 1 (handled)", 1)
    assert signal.getsignal(signal.SIGTERM) is before
    assert calls == ["begun", "ended"]


@pytest.mark.parametrize(
    ("since", "found"),
    [("2h", True), ("10m", False), ("{ago}Z", True), ("{ago}+00:00", True), ("2999-01-01", False)],
)
def test_since_takes_a_span_and_moments_of_any_zone(ledger, run, since, found):
    failed_at = datetime.now(UTC) - timedelta(hours=1)
    ledger.add_failed_event(letter_of(last_attempt_at=failed_at))
    ago = f"{failed_at - timedelta(minutes=1):%Y-%m-%dT%H:%M}"
    told = run("dlq", "list", "--since", since.format(ago=ago)).output
    assert ("no entries" not in told) is found


def test_what_is_no_moment_is_refused_with_examples(ledger, run):
    result = run("dlq", "list", "--since", "yesterday")
    assert (result.exit_code, "write 2026-11-22" in result.output) == (2, True)


def test_a_group_is_named_by_its_beginning_and_a_mistyped_one_is_an_error(ledger, run, fails):
    (entry,) = ledger.add_failed_events([letter_of()])
    told = run("dlq", "list", "--group", entry.fingerprint[:6])
    assert entry.id[:12] in told.output
    for command in ("list", "replay", "skip"):
        assert "there is no group 'nonsense'" in fails("dlq", command, "--group", "nonsense")


@pytest.mark.parametrize(
    ("domain", "said"),
    [
        ("ordr", "this app has no such domain; it has order. One that only events name"),
        ("a b/c", "domain 'a b/c' cannot be used"),
    ],
)
def test_a_domain_that_the_app_does_not_have_is_refused_before_anything_is_declared(
    app, run, domain, said
):
    app.queue = None
    app.open_dead_letter_queue = lambda: pytest.fail("it was opened")
    result = run("dlq", "analyze", "--domain", "order", "--domain", domain)
    assert result.exit_code != 0
    assert said in " ".join(result.output.split())
