from __future__ import annotations

import json
import re
import sys
import types
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import click
import pytest
from click.testing import CliRunner
from pydantic import BaseModel
from tests.apps import apps
from tests.contracts.rejections import AT, a_rejection

from angzarr import Aggregate, ProcessManager, Saga, Send, applies, handles, reacts_to, rejected
from angzarr.adapters.memory.event_store import MemoryEventBooks, MemoryRejectionLog
from angzarr.adapters.memory.facts import MemoryFactLog
from angzarr.aggregates.book import Address, Decision, Write
from angzarr.cli.main import main
from angzarr.cli.saga import case_ids
from angzarr.clock import SystemClock
from angzarr.dead_letters.masking import compiled
from angzarr.dead_letters.protection import Protection
from angzarr.dead_letters.redaction import Redaction
from angzarr.errors import BrokerUnavailable
from angzarr.events.event import Event
from angzarr.facts.act_log import ActLog
from angzarr.sagas.log import SETTLED, RejectionStatus, case_of
from angzarr.sagas.rejection_answers import CompensationStep
from angzarr.wiring.event_store import EventDatabase
from apps import module_with

#: What a terminal, rich or a reader of lines would act on.
EVIL = "evil\x1b[2J[red]x[/red]\u202e\x07"


class FakeOutbox:
    def __init__(self, app) -> None:
        self.app, self.told = app, []
        self.away = False

    def tell(self, rejection, asked=0):
        assert self.app.loaded, "nobody knows the queue yet"
        if self.away:
            raise BrokerUnavailable("the broker is away")
        self.told.append((rejection, asked))


class FakeApp:
    """What the commands need of an app, in memory."""

    ops = context = property(lambda self: self)

    open_ledger = None

    def __init__(self) -> None:
        self.books, self.log = MemoryEventBooks(), MemoryRejectionLog()
        self.outbox, self.facts, self.protect = FakeOutbox(self), MemoryFactLog(), Protection()
        self.acts = ActLog(facts=lambda: self.facts, clock=SystemClock())
        self.loaded = False
        compensation = types.SimpleNamespace(fallback_domain="angzarr.saga-failures")
        self.settings = types.SimpleNamespace(saga_compensation=compensation)

    def open_event_stores(self):
        return EventDatabase(self.books, self.log)

    def letter_protection(self):
        return self.protect

    def known_handlers(self):
        self.loaded = True

    def hides(self, *paths, texts=()):
        patterns = [compiled(pattern) for pattern in texts]
        self.protect = Protection(redaction=Redaction.of(paths, patterns))

    def case(self, status=RejectionStatus.FAILED, *, ago=timedelta(hours=1), data=None, **fields):
        """Keep a case of a source that has the event which set it off."""
        rejection = a_rejection(data={"pin": "4711"} if data is None else data, sequence=0)
        now = datetime.now(UTC)
        made = case_of(rejection, now - ago)
        case = replace(made, status=status, rejected_at=AT, **fields)
        self.log.note(case)
        reserved = Event(id="because", type="Reserved", data={"pin": "4711", "amount": 5})
        self.write("c", reserved)
        return case

    def write(self, cause, *events):
        decision = Decision(cause=cause, events=events)
        self.books.write(Write(address=Address("player", "p-1"), decision=decision))

    def now(self, case):
        (found,) = self.log.look(case.id)
        return found


def serve(monkeypatch, app):
    monkeypatch.setitem(sys.modules, "rooms_for_test", module_with(app=app))
    return app


@pytest.fixture
def app(monkeypatch):
    return serve(monkeypatch, FakeApp())


@pytest.fixture
def run():
    def call(*arguments, **options):
        return CliRunner().invoke(main, ["-A", "rooms_for_test", "saga", *arguments], **options)

    return call


@pytest.fixture
def said(run):
    def call(*arguments):
        result = run(*arguments, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    return call


def flat(output):
    """Return *output* without the lines of its tables, which break words."""
    return re.sub(r"[│┃\s]+", " ", output)


# -- list ------------------------------------------------------------------------------------------


def test_nothing_is_said_plainly(app, run, said):
    assert run("list").stdout == "no rejected commands\n"
    assert said("list") == {"cases": [], "next": None}


def test_a_case_is_listed_with_all_that_names_it(app, run, said):
    case = app.case(answer="LookupError: no rate")
    told = flat(run("list").stdout)
    for part in (case.id[:12], "seating", "player/p-1 #0", "SeatPlayer", "table/t-1", "failed",
                 "the table is full"):  # fmt: skip
        assert part in told
    (listed,) = said("list")["cases"]
    assert listed["source"] == {"domain": "player", "root": "p-1", "edition": ""}
    assert (listed["id"], listed["status"], listed["answer"]) == (case.id, "failed", case.answer)
    assert "rejection" not in listed


def test_pages_leave_nothing_out(app, said):
    ids = [app.case().id for _ in range(5)]
    found, after = [], []
    while True:
        page = said("list", "--limit", "2", *after)
        found += [case["id"] for case in page["cases"]]
        if page["next"] is None:
            break
        after = ["--after", page["next"]]
    assert sorted(found) == sorted(ids)
    assert len(found) == 5


def test_people_are_shown_how_to_go_on(app, run, said):
    for _ in range(3):
        app.case()
    cursor = said("list", "--limit", "2")["next"]
    assert said("list", "--limit", "3")["next"] is None
    assert f"more: --after {cursor}" in flat(run("list", "--limit", "2").stdout)


@pytest.mark.parametrize("cursor", ["x", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00,x", ",x"])
def test_a_cursor_that_is_none_is_refused(app, run, cursor):
    result = run("list", "--after", cursor)
    assert result.exit_code == 2
    assert "is not a cursor" in result.stderr


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--saga", "seating"], 2),
        (["--saga", "other"], 0),
        (["--domain", "player"], 2),
        (["--domain", "table"], 0),
        (["--status", "told"], 1),
        (["--correlation", "flow"], 2),
        (["--correlation-id", "x"], 0),
        (["--status", "failed", "--saga", "seating"], 1),
    ],
)
def test_a_list_is_of_what_is_wanted(app, said, options, found):
    app.case()
    app.case(RejectionStatus.TOLD)
    assert len(said("list", *options)["cases"]) == found


def test_what_came_from_outside_is_shown_and_never_obeyed(app, run):
    case = app.case(reason=EVIL, saga=EVIL, answer=EVIL, correlation_id=EVIL, note=EVIL)
    for output in (run("list").stdout, run("show", case.id).stdout):
        assert "\x1b" not in output
        assert "\u202e" not in output
        assert "[red]x[/red]" in flat(output)


def test_reasons_are_redacted_as_letters_are(app, run, said):
    app.hides("event.pin", texts=["card [0-9]+"])
    case = app.case(reason="card 99 of pin 4711 refused", answer="Error: card 99")
    for output in (run("list").stdout, json.dumps(said("list"))):
        assert "card 99" not in output
    for output in (run("show", case.id).stdout, json.dumps(said("show", case.id))):
        assert "card 99" not in output
        assert "4711" not in output


def test_a_correlation_id_that_is_too_long_for_an_index_finds_its_cases(app, run, said):
    flow = "f" * 1000
    rejection = a_rejection()
    event = replace(rejection.command.event, correlation_id=flow)
    command = replace(rejection.command, event=event)
    case = case_of(replace(rejection, command=command), AT)
    app.log.note(case)
    assert [one["id"] for one in said("list", "--correlation", flow)["cases"]] == [case.id]
    assert flow in run("show", case.id).stdout.replace("\n", "")


# -- show ------------------------------------------------------------------------------------------


def test_the_chain_is_told_in_order(app, run):
    case = app.case(RejectionStatus.COMPENSATED, asked_again=2, asked_by="kim@desk", note="mended")
    app.write(case.id, Event(id="undone", type="Released", data=1))
    output = flat(run("show", case.id[:8]).stdout)
    order = ["Reserved", "player/p-1 #0", "SeatPlayer", "table/t-1", "the table is full",
             "compensated", "Released", "player/p-1 #1", "undone"]  # fmt: skip
    chain = output[output.index("chain") :]
    places = [chain.index(part) for part in order]
    assert places == sorted(places)
    assert "2 times, last by kim@desk" in output
    assert "mended" in output
    assert "angzarr dlq list --correlation flow" in output


def test_a_case_is_told_to_programs(app, said):
    case = app.case(RejectionStatus.COMPENSATED)
    app.write(case.id, Event(id="undone", type="Released", data=1))
    told = said("show", case.id)
    assert told["trigger"]["type"] == "Reserved"
    assert (told["trigger"]["sequence"], told["trigger"]["id"]) == (0, "because")
    assert (told["command"]["id"], told["command"]["root"]) == (case.command_id, "t-1")
    assert [(one["type"], one["sequence"]) for one in told["compensation"]] == [("Released", 1)]
    assert (told["escalation_id"], told["failure_id"]) == (None, None)


def test_what_was_done_besides_is_named(app, run, said):
    case = app.case(
        answer="no rate",
        steps=(CompensationStep.DEAD_LETTER, CompensationStep.ESCALATE, CompensationStep.REVOKE),
    )
    told = said("show", case.id)
    assert told["steps"] == ["dead_letter", "escalate", "revoke"]
    output = flat(run("show", case.id).stdout)
    for part in ("a dead letter", told["escalation_id"], told["failure_id"],
                 "angzarr.saga-failures", "failed: no rate"):  # fmt: skip
        assert part in output


def test_a_source_that_has_not_answered_is_said_to_have_not(app, run):
    assert "none yet" in flat(run("show", app.case(RejectionStatus.TOLD).id).stdout)


def test_an_event_that_is_in_no_book_of_the_source_is_said_to_be(app, run, said):
    case = app.case(source_sequence=7)
    assert "number 7, in no book of the source" in flat(run("show", case.id).stdout)
    assert said("show", case.id)["trigger"] is None


def test_data_is_told_only_to_who_asks_and_redacted(app, run, said):
    app.hides("event.pin")
    case = app.case(RejectionStatus.COMPENSATED)
    app.write(case.id, Event(id="undone", type="Released", data={"pin": "4711", "left": 8}))
    plain = run("show", case.id).stdout
    assert '"amount"' not in plain
    assert "data" not in said("show", case.id)["trigger"]
    told = said("show", case.id, "--data")
    assert told["trigger"]["data"] == {"pin": "[redacted]", "amount": 5}
    assert told["command"]["data"] == {"pin": "[redacted]"}
    assert [one["data"]["left"] for one in told["compensation"]] == [8]
    output = run("show", case.id, "--data").stdout
    assert '"left": 8' in output
    assert "4711" not in f"{plain}{told}{output}"


@pytest.mark.parametrize("verb", ["show", "compensate"])
def test_an_id_must_be_known_and_name_one(app, run, verb):
    case = app.case()
    app.log.note(replace(case, id=f"{case.id}0"))
    app.log.note(replace(case, id=f"{case.id}1"))
    unknown, short, several = run(verb, "0" * 12), run(verb, "0" * 5), run(verb, case.id[:12])
    assert (unknown.exit_code, short.exit_code, several.exit_code) == (1, 2, 2)
    assert "there is no case '000000000000'; `angzarr saga list` shows them" in unknown.stderr
    assert "too short" in short.stderr
    assert "several cases begin with" in several.stderr


@pytest.mark.parametrize("shown", ["upper", "lower"])
def test_an_id_may_be_typed_in_capitals(app, said, shown):
    case = app.case()
    assert said("show", getattr(case.id[:14], shown)())["id"] == case.id


def test_newer_cases_are_completed(app):
    case = app.case()
    with main.make_context("angzarr", ["-A", "rooms_for_test", "saga"]) as ctx:
        assert [one.value for one in case_ids(ctx, None, case.id[:4])] == [case.id[:12]]
        assert case_ids(ctx, None, "zzz") == []


def test_a_log_that_cannot_be_asked_offers_nothing():
    with click.Context(main) as ctx:
        ctx.params["app_name"] = "no_such_module"
        assert case_ids(ctx, None, "") == []


# -- compensate ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "status",
    [
        RejectionStatus.FAILED,
        RejectionStatus.DECLINED,
        RejectionStatus.REVOKED,
        RejectionStatus.ABORTED,
    ],
)
def test_who_says_yes_has_the_source_asked_again(app, run, status):
    case = app.case(status)
    result = run("compensate", case.id[:12], "--note", "mended", input="y\n")
    assert result.exit_code == 0, result.output
    assert "Ask player/p-1 again to compensate for the rejected SeatPlayer?" in result.stderr
    assert "player/p-1 is asked again to compensate for the rejected SeatPlayer" in result.stdout
    ((rejection, asked),) = app.outbox.told
    assert (rejection.id, rejection.command.event.data, asked) == (case.id, {"pin": "4711"}, 1)
    now = app.now(case)
    assert (now.status, now.asked_again, now.note) == (RejectionStatus.TOLD, 1, "mended")
    assert now.asked_by
    begun, fact = app.facts.read()
    assert (begun.subtype, fact.resolves) == ("act_begun", begun.id)
    assert (fact.data["by"], fact.data["case"]) == (now.asked_by, case.id)


def test_who_says_no_changes_nothing(app, run):
    case = app.case()
    assert run("compensate", case.id, input="n\n").exit_code == 1
    assert app.now(case) == case
    assert app.outbox.told == []


def test_a_program_is_told_the_case_as_it_is_then(app, said):
    case = app.case()
    told = said("compensate", case.id, "--yes")
    assert (told["id"], told["status"], told["asked_again"]) == (case.id, "told", 1)
    assert said("compensate", case.id, "--yes")["asked_again"] == 2


def test_people_are_told_how_often_it_was(app, run):
    case = app.case(asked_again=1)
    assert "for the 2. time" in run("compensate", case.id, "--yes").stdout


@pytest.mark.parametrize(("status", "why"), [
    (RejectionStatus.COMPENSATED, "its source compensated"),
    (RejectionStatus.FORWARDED, "its source sent it on"),
])  # fmt: skip
def test_a_settled_case_is_refused_in_one_sentence(app, run, status, why):
    case = app.case(status)
    result = run("compensate", case.id, "--yes")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {case.id} is {status}: {why}")
    assert app.now(case) == case
    assert app.outbox.told == []


def test_every_settled_status_has_its_sentence():
    assert {RejectionStatus.COMPENSATED, RejectionStatus.FORWARDED} == SETTLED


def test_a_case_that_was_too_large_to_keep_is_refused(app, run):
    case = app.case(rejection=None)
    result = run("compensate", case.id, "--yes")
    assert result.exit_code == 1
    assert "replay its dead letter instead" in result.stderr


def test_a_source_that_was_told_just_now_is_left_in_peace(app, run):
    case = app.case(RejectionStatus.TOLD, ago=timedelta(minutes=2))
    result = run("compensate", case.id, input="y\n")
    assert result.exit_code == 1
    assert "has not answered yet: give it some minutes" in result.stderr
    assert app.outbox.told == []


def test_who_insists_has_it_told_again(app, run):
    case = app.case(RejectionStatus.TOLD, ago=timedelta(minutes=2))
    result = run("compensate", case.id, "--yes")
    assert result.exit_code == 0
    assert "see that workers read its queue" in result.stderr
    assert len(app.outbox.told) == 1


def test_a_source_that_was_told_long_ago_is_asked_with_a_warning(app, run):
    case = app.case(RejectionStatus.TOLD)
    result = run("compensate", case.id, input="y\n")
    assert result.exit_code == 0
    assert "has not answered yet: see that workers read its queue" in result.stderr
    assert len(app.outbox.told) == 1


def test_a_broker_that_is_away_is_one_sentence_and_nothing_is_lost(app, run):
    case = app.case()
    app.outbox.away = True
    result = run("compensate", case.id, "--yes")
    assert result.exit_code == 1
    assert "(the broker is away): nothing is lost, do it again with --yes when" in result.stderr
    app.outbox.away = False
    assert run("compensate", case.id, "--yes").exit_code == 0
    assert [asked for _, asked in app.outbox.told] == [2]


def test_a_note_has_its_length(app, run):
    result = run("compensate", app.case().id, "--yes", "--note", "x" * 100_000)
    assert result.exit_code == 2
    assert app.outbox.told == []


# -- registered ------------------------------------------------------------------------------------


class Reserved(BaseModel):
    amount: int


class Seat(BaseModel):
    amount: int


class Seated(BaseModel):
    amount: int


class Counts(BaseModel):
    number: int = 0


@pytest.fixture
def real(monkeypatch):
    with apps(broker="memory://", store="memory://") as make:
        yield serve(monkeypatch, make())


def test_an_app_without_sagas_says_so(real, run, said):
    assert "registers no sagas" in run("registered").stdout
    assert said("registered") == []


def test_what_an_app_registers_is_told_with_its_queues(real, run, said):
    real.conf.task_routes = {"command.table.*": {"queue": "tables"}}

    @real.process_manager("fulfilment", queue="slow")
    class Fulfilment(ProcessManager[Counts]):
        @reacts_to(Reserved)
        def on_reserved(self, event: Reserved) -> Send:
            return Send(Seat(amount=event.amount), domain="table", root="t")

        @rejected("table", Seat)
        def refused(self, _context: object) -> None:
            return None

    @real.saga("seating", source="player")
    class Seating(Saga):
        @reacts_to(Reserved)
        def ask(self, event: Reserved) -> Send:
            return Send(Seat(amount=event.amount), domain="table", root="t")

    @real.aggregate("table")
    class Table(Aggregate[Counts]):
        @handles(Seat)
        def seat(self, command: Seat) -> Seated:
            return Seated(amount=command.amount)

        @applies(Seated)
        def on_seated(self, _event: Seated) -> None:
            pass

    default = real.conf.task_default_queue
    assert said("registered") == [
        {"kind": "saga", "name": "seating", "source": "player", "reacts_to": ["Reserved"],
         "handles": [], "rejected": [], "queues": [default]},
        {"kind": "process manager", "name": "fulfilment", "source": "", "reacts_to": ["Reserved"],
         "handles": [], "rejected": ["Seat by table"], "queues": ["slow"]},
        {"kind": "aggregate", "name": "table", "source": "", "reacts_to": [],
         "handles": ["Seat"], "rejected": [], "queues": sorted([default, "tables"])},
    ]  # fmt: skip
    output = flat(run("registered").stdout)
    for part in ("Reserved of player", "Seat by table", "tables", "slow", "process manager"):
        assert part in output
