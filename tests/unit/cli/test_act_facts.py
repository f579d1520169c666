"""Each command by which people act leaves a fact that says who did what.

A command that is added must be known to act, with what drives it here, or to only look.
"""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import click
import pytest
from click.testing import CliRunner
from tests.apps import apps
from tests.contracts.event_store import event, fill
from tests.contracts.rejections import a_rejection

from angzarr.adapters.files.spool import FolderOfLetters, Spool
from angzarr.adapters.memory.breaker import InProcessBreakers
from angzarr.adapters.memory.dead_letters import MemoryDeadLetterQueue
from angzarr.adapters.memory.payload_holders import MemoryPayloadHolders
from angzarr.adapters.memory.switches import InProcessSwitches
from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.facts.reader import SqlFactReader
from angzarr.adapters.sql.ledger.database import LedgerDatabase
from angzarr.adapters.sql.ledger.fact_outbox import LedgerFactOutbox
from angzarr.analysis.ledger.operator_actions import Act, Verb
from angzarr.analysis.replay.job import JobPlan, Selection
from angzarr.cli.main import main
from angzarr.dead_letters.spool_forwarder import Forwarder
from angzarr.delivery.breaker_log import BreakerLog, SwitchLog
from angzarr.doctor.finding import Fix
from angzarr.facts.act import ActKind, ActStage
from angzarr.facts.fact import Fact
from angzarr.facts.fact_text import fact_from_text
from angzarr.facts.query import FactOrder, FactQuery
from angzarr.facts.resolution import LIFECYCLE
from angzarr.payloads.collector import CollectionAccount
from angzarr.payloads.holders import holding
from angzarr.sagas.log import case_of
from angzarr.wiring.analysis_worker import person
from angzarr.wiring.operations import Operations
from apps import module_with
from contracts.dead_letters import a_letter
from contracts.ledger import letter_of, message_of
from unit.cli.dlq.test_alerts import FakeSink
from unit.cli.projection.test_rebuild import ONE, OrderPlaced
from unit.cli.projection.test_rebuild import prepare as add_projections

#: Commands that change nothing, or only what they print; processes, whose acts are their own; and
#: the demo, which acts on an app of its own.
LOOK_ONLY = {
    "breaker list", "breaker show", "breaker watch", "completion", "config diff", "config get",
    "config history", "config list", "config versions", "cost budgets", "cost report",
    "dashboard serve", "dashboard token", "database check", "database version", "demo",
    "dlq alerts list", "dlq analyze", "dlq brake history", "dlq brake status", "dlq explain",
    "dlq groups", "dlq jobs list", "dlq jobs show", "dlq jobs watch", "dlq list", "dlq show",
    "dlq spool list", "dlq spool show", "dlq spool stats", "dlq stats", "fact export", "fact list",
    "fact show", "fact stats", "fact tail", "fleet list", "fleet releases", "flow history",
    "flow list", "health", "ledger check", "ledger export", "ledger version", "payload holders",
    "payload list", "payload stats", "policy explain", "policy list", "projection lag",
    "projection list", "projection show", "saga list", "saga registered", "saga show", "worker",
}  # fmt: skip
#: Drivers of commands that act, by name.
DRIVERS = {}
OLD = datetime.now(UTC) - timedelta(days=900)


def drives(command, *kinds):
    """Register what drives *command*: it returns arguments; acts of *kinds* must follow."""

    def register(driver):
        assert command not in DRIVERS
        DRIVERS[command] = driver, [kind.value for kind in kinds]
        return driver

    return register


def leaves(command, path):
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from leaves(command.get_command(context, name), [*path, name])
    else:
        yield " ".join(path)


COMMANDS = sorted(leaves(main, []))


def test_every_command_is_driven_or_known_to_only_look():
    assert set(COMMANDS) == set(DRIVERS) | LOOK_ONLY
    assert not set(DRIVERS) & LOOK_ONLY


def add_handlers(app):
    @app.handler(OrderPlaced, name="orders.unsync", domain="order")
    def undo(event: OrderPlaced) -> None:
        """Nothing is undone."""

    @app.handler(OrderPlaced, name="orders.sync", domain="order", compensation=undo)
    def sync(event: OrderPlaced) -> None:
        """Nothing is synced."""


class Site:
    """An app as a user has it, on SQLite and in memory, and the facts of what is done to it."""

    def __init__(self, make, folder, monkeypatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        self.url = f"sqlite:///{folder / 'shop.db'}"
        self.app = make(
            ledger=self.url, books=self.url, store=self.url, facts={"url": self.url},
            configuration={"url": self.url},
        )  # fmt: skip
        add_projections(self.app)
        add_handlers(self.app)
        self.ops = self.app.ops
        monkeypatch.setitem(sys.modules, "acting_shop", module_with(app=self.app))
        for name, value in {
            "breaker_controls": InProcessBreakers(watch=BreakerLog(facts=lambda: self.ops.facts)),
            "switch_controls": InProcessSwitches(watch=SwitchLog(facts=lambda: self.ops.facts)),
        }.items():
            monkeypatch.setattr(Operations, name, lambda _ops, value=value: value)

    def run(self, *arguments, **options):
        given = ["-A", "acting_shop", *map(str, arguments)]
        result = CliRunner().invoke(main, given, **options)
        assert result.exit_code == 0, result.output
        return result

    def file(self, count=1):
        ledger = self.ops.open_ledger()
        queue = self.app.conf.task_default_queue
        messages = {f"e{number}": message_of(f"e{number}") for number in range(count)}
        made = [
            letter_of(event_id, message=replace(message, queue=queue))
            for event_id, message in messages.items()
        ]
        entries = ledger.add_failed_events(made)
        ledger.close()
        return entries

    def act(self, entry, verb):
        ledger = self.ops.open_ledger()
        assert ledger.act([Act(entry_id=entry.id, revision=1, verb=verb)], by="ada") == [True]
        ledger.close()

    def begin(self, count=1, **options):
        jobs = self.ops.open_replay_jobs()
        chosen = Selection(entry_ids=tuple(entry.id for entry in self.file(count)))
        job = jobs.begin(chosen, JobPlan(), by="ada@elsewhere", **options)
        jobs.close()
        return job

    def acts(self):
        """The facts of acts since the last call."""
        self.ops.facts.close()  # which writes them
        outbox = LedgerFactOutbox(LedgerDatabase(build_engine(self.url)))
        waiting = outbox.read(1000)
        outbox.remove([one.place for one in waiting])
        outbox.close()
        reader = SqlFactReader(self.url)
        page = reader.find(FactQuery(type=LIFECYCLE), order=FactOrder.ARRIVAL, limit=1000)
        reader.close()
        told = [one for one in page.facts if one.id not in self._told]
        self._told |= {one.id for one in told}
        found = [fact_from_text(one.text) for one in waiting] + told
        return [fact for fact in found if fact.subtype in set(ActKind)]

    _told: frozenset[str] = frozenset()

    def at_last(self):
        """Change what only the command itself may see; a driver sets it."""


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with apps(broker="memory://") as make:
        site = Site(make, tmp_path, monkeypatch)
        site.ops.table_upkeeps(["ledger"])["ledger"]().upgrade()
        yield site


@pytest.mark.parametrize("command", [one for one in COMMANDS if one not in LOOK_ONLY])
def test_each_command_that_acts_leaves_its_facts(site, command):
    driver, kinds = DRIVERS[command]
    arguments = driver(site)
    site.acts()
    site.at_last()
    site.run(*command.split(), *arguments)
    found = site.acts()
    assert [fact.subtype for fact in found] == kinds
    for fact in found:
        assert (fact.data["by"], fact.data["origin"]) == (person(), "cli")


# -- the ledger ----------------------------------------------------------------------------------

for _verb, _kind in (
    ("skip", ActKind.ENTRY_SKIPPED), ("archive", ActKind.ENTRY_ARCHIVED),
    ("escalate", ActKind.ENTRY_ESCALATED), ("resolve", ActKind.ENTRY_RESOLVED),
    ("compensate", ActKind.ENTRY_COMPENSATED),
):  # fmt: skip

    @drives(f"dlq {_verb}", _kind)
    def _act(site):
        (entry,) = site.file()
        return entry.id, "--yes", "--note", "a test"


@drives("dlq restore", ActKind.ENTRY_RESTORED)
def restore(site):
    (entry,) = site.file()
    site.act(entry, Verb.ARCHIVE)
    return entry.id, "--yes"


@drives("dlq replay", ActKind.ENTRY_REPLAYED)
def replay(site):
    return site.file()[0].id, "--yes"


@drives("dlq edit", ActKind.ENTRY_REPLAYED)
def edit(site):
    (site.folder / "new.json").write_text('{"total": 4}')
    return site.file()[0].id, "--file", site.folder / "new.json", "--yes"


@drives("dlq group", ActKind.GROUP_CHANGED)
def group(site):
    return site.file()[0].fingerprint, "--owner", "ann"


@drives("dlq brake pull", ActKind.BRAKE_PULLED)
def pull(_site):
    return "--why", "crm is down"


@drives("dlq brake release", ActKind.BRAKE_RELEASED)
def release(_site):
    return ()


for _how, _kind in (
    ("pause", ActKind.REPLAY_JOB_PAUSED), ("cancel", ActKind.REPLAY_JOB_CANCELLED),
):  # fmt: skip

    @drives(f"dlq jobs {_how}", _kind)
    def _steer(site, how=_how):
        job = site.begin()
        return (job.id,) if how == "pause" else (job.id, "--yes")


@drives("dlq jobs resume", ActKind.REPLAY_JOB_RESUMED)
def resume(site):
    job, jobs = site.begin(), site.ops.open_replay_jobs()
    jobs.pause(job.id, by="ada")
    jobs.close()
    return (job.id,)


@drives("dlq jobs approve", ActKind.REPLAY_JOB_APPROVED)
def approve(site):
    return site.begin(2, approval_over=1).id, "--yes"


@drives("ledger recount", ActKind.LEDGER_RECOUNTED)
def recount(site):
    site.file()
    engine = build_engine(site.url)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE ledger_groups SET entries = 7")
    engine.dispose()
    return ()


@drives("ledger upgrade", ActKind.TABLES_UPGRADED)
def upgrade_ledger(site):
    def fall_behind():
        engine = build_engine(site.url)
        with engine.begin() as connection:
            connection.exec_driver_sql("UPDATE ledger_version SET version_num = '0018'")
        engine.dispose()

    site.at_last = fall_behind
    return ()


@drives("database upgrade", ActKind.TABLES_UPGRADED)
def upgrade_tables(_site):
    return ("config",)


# -- letters -------------------------------------------------------------------------------------


def put_letters(site):
    queue = site.ops.open_dead_letter_queue()
    queue.put([a_letter("order")])
    queue.close()


@drives("dlq move", ActKind.LETTERS_MOVED)
def move(site):
    put_letters(site)
    other = site.folder / "other"
    return "--from", "app", "--to", f"spool://{other}", "--domain", "order", "--yes"


@drives("dlq export", ActKind.LETTERS_DRAINED)
def drain(site):
    put_letters(site)
    return "--from", "app", "--to", site.folder / "out", "--drain", "--domain", "order"


@drives("dlq import", ActKind.LETTERS_IMPORTED)
def import_(site):
    put_letters(site)
    file = site.folder / "letters"
    site.run("dlq", "export", "--from", "app", "--to", file, "--domain", "order")
    return file, "--to", "app"


@drives("dlq spool forward", ActKind.LETTERS_FORWARDED)
def forward(site):
    folder = site.folder / "spool"
    spool = Spool(folder, max_bytes=2**30)
    spool.prepare()
    spool.put([a_letter("order")])
    target = MemoryDeadLetterQueue("forwarded")
    site.monkeypatch.setattr(
        Operations,
        "open_forwarder",
        lambda _ops, path: Forwarder(spool=FolderOfLetters(path), queue=target, chance=lambda: 0.5),
    )
    site.monkeypatch.setattr(Operations, "check_analysis", lambda _ops: None)
    return ("--path", folder)


@drives("dlq alerts test", ActKind.ALERT_TESTED)
def try_alert(site):
    sinks = {"ops": FakeSink("ops", arrived=True)}
    site.monkeypatch.setattr(Operations, "open_webhooks", lambda _ops: sinks)
    return ()


# -- the rest ------------------------------------------------------------------------------------


@drives("config put", ActKind.CONFIGURATION_PUT)
def put(site):
    (site.folder / "prices.json").write_text('{"net": "1.10"}')
    return "pricing", site.folder / "prices.json", "--note", "spring"


@drives("config pin", ActKind.CONFIGURATION_PINNED)
def pin(site):
    for value in "12":
        site.run("config", "put", "pricing", "-", input=value)
    return "pricing", "1"


for _how in ("isolate", "reset"):

    @drives(f"breaker {_how}", ActKind.BREAKER_CHANGED)
    def _breaker(site, how=_how):
        site.run("breaker", "isolate", "crm", "--create")
        if how == "reset":
            return ("crm",)
        site.run("breaker", "reset", "crm")
        return "crm", "--create"


for _how in ("pause", "drop"):

    @drives(f"flow {_how}", ActKind.FLOW_SWITCHED)
    def _switch(_site, how=_how):
        more = ["--yes", "--reason", "a test"] if how == "drop" else []
        return ("--tenant", "acme", *more)


@drives("flow resume", ActKind.FLOW_SWITCHED)
def resume_flow(site):
    site.run("flow", "pause", "--tenant", "acme")
    return ("--all",)


def sales(site):
    """Events of the projection `sales`, and its table."""
    with site.app._parts.ordering.lanes.transaction() as connection:
        connection.exec_driver_sql("CREATE TABLE sales (id text PRIMARY KEY, total int)")
    stores = site.ops.open_event_stores()
    fill(stores.books, ONE, *[event("OrderRenamed")] * 3)
    stores.close()


@drives("projection rebuild", ActKind.PROJECTION_REBUILD_STARTED, ActKind.PROJECTION_REBUILT)
def rebuild(site):
    sales(site)
    return "sales", "--yes"


@drives("projection skip", ActKind.PROJECTION_SKIPPED)
def skip(site):
    sales(site)
    return "sales", f"{ONE.domain}/{ONE.root}", "--to", "2", "--yes"


@drives("projection begin", ActKind.PROJECTION_BEGUN)
def begin(site):
    sales(site)
    return "sales", "--at-present", "--yes"


@drives("projection reset", ActKind.PROJECTION_RESET)
def reset(site):
    sales(site)
    return "sales", "--yes"


@drives("saga compensate", ActKind.COMPENSATION_ASKED_AGAIN)
def ask_again(site):
    stores = site.ops.open_event_stores()
    case = stores.rejections.note(case_of(a_rejection(), datetime.now(UTC)))
    stores.close()
    outbox = type("Outbox", (), {"tell": lambda *_said: None})()
    site.monkeypatch.setattr(Operations, "outbox", outbox)
    return case.id, "--yes"


@drives("books prune", ActKind.BOOKS_PRUNED)
def prune_books(site):
    class Some:
        name, what = "decisions", "decisions"
        left = 3

        def remove(self, _now):
            removed, self.left = self.left, 0
            return removed, False

    site.monkeypatch.setattr("angzarr.cli.database.removals", lambda *_args: [Some()])
    return ()


@drives("fact prune", ActKind.FACTS_PRUNED)
def prune_facts(site):
    store = site.ops.open_fact_store()
    store.add(Fact(id="old", type=LIFECYCLE, subtype="handled", at=OLD))
    store.close()
    return "--before", "400d", "--without-export", "--yes"


@drives("payload gc", ActKind.PAYLOADS_DELETED)
def collect_payloads(site):
    class Some:
        account = CollectionAccount(bodies=3, bytes=30)

        def collect(self):
            """They are gone."""

        def close(self):
            """Nothing is open."""

    site.monkeypatch.setattr(Operations, "open_payload_collector", lambda _ops: Some())
    return ("--yes",)


@drives("payload release", ActKind.PAYLOAD_RELEASED)
def release_a_payload(site):
    register = MemoryPayloadHolders()
    uri = holding(register, "a crash")("s3://b/aa/a", 10)

    class Some:
        def __init__(self):
            self.register = register

        def close(self):
            """Nothing is open."""

    site.monkeypatch.setattr(Operations, "open_payload_collector", lambda _ops: Some())
    return uri, "--yes"


@drives("doctor", ActKind.SETUP_FIXED)
def fix(site):
    one = Fix(kind="queue", at="broker", what="make the queue durable")
    site.monkeypatch.setattr("angzarr.cli.doctor._fix_of", lambda _finding: one)
    site.monkeypatch.setattr("angzarr.doctor_probes.run.apply_fix", lambda _target, _fix: "")
    return "--fix", "--yes", "--fail-on", "never"


def test_what_did_nothing_leaves_no_fact(site):
    site.run("config", "put", "pricing", "-", input="1")
    site.acts()
    site.run("config", "put", "pricing", "-", input="1")
    site.run("config", "pin", "pricing", "1")
    site.run("ledger", "recount")
    site.run("ledger", "upgrade")
    assert site.acts() == []


def test_the_fact_of_a_configuration_names_its_version_and_its_author(site):
    site.run("config", "put", "pricing", "-", "--by", "ada", "--note", "spring", input="1")
    (fact,) = site.acts()
    assert (fact.config_id, fact.config_version) == ("pricing", "1")
    assert (fact.data["by"], fact.data["reason"]) == ("ada", "spring")


def test_an_act_is_shown_with_who_did_it_and_why(site):
    (entry,) = site.file()
    site.run("dlq", "skip", entry.id, "--yes", "--note", "a test order")
    (fact,) = site.acts()
    store = site.ops.open_fact_store()
    store.add(fact)
    store.close()
    shown = " ".join(site.run("dlq", "show", entry.id).output.split())
    assert "from the command line" in shown
    assert "automatically" in shown  # it was filed so
    shown = site.run("fact", "list", "--subtype", "entry_skipped").output
    assert "a test order" in " ".join(shown.split())
    told = json.loads(site.run("fact", "show", fact.id, "--json").output)
    assert told["data"]["by"] == person()


# -- acts that have no transaction with their facts ----------------------------------------------


class Killed(BaseException):
    """What no command survives."""


class DyingLog:
    """The facts of a process that is killed once they have it that an act begins.

    *at_once*: before the act, which nothing of it is done then; else behind it, before its end.
    """

    def __init__(self, log, *, at_once):
        self.log, self.at_once, self.is_dead = log, at_once, False

    def append(self, facts, /, *, before_ack=False):
        if not self.is_dead:
            self.log.append(facts, before_ack=before_ack)

    def flush(self, within, /):
        assert self.log.flush(timedelta(seconds=60))
        self.is_dead = True
        if self.at_once:
            raise Killed
        return True

    def close(self):
        self.log.close()


@contextmanager
def dying(site, *, at_once):
    """Let the site's process be one that is killed."""
    log = DyingLog(site.ops.facts, at_once=at_once)
    with site.monkeypatch.context() as patch:
        patch.setattr(Operations, "facts", property(lambda _ops: log))
        yield


def off_the_ledger(command):
    kinds = set(DRIVERS[command][1])
    return bool(kinds) and not any(kind.startswith(OF_THE_LEDGER) for kind in kinds)


#: Acts that are written with their facts.
OF_THE_LEDGER = ("entry_", "replay_job_", "group_", "brake_")
#: Acts that are told while they are under way.
ON_THE_WAY = {"projection_rebuild_started"}
#: What goes on behind the file that a killed command has made.
AGAIN = {"dlq export": ["--append"]}
ALONE = pytest.mark.parametrize("command", sorted(filter(off_the_ledger, DRIVERS)))


def begun(site):
    """The facts that acts begin, and those of their ends, by their beginnings."""
    reader = SqlFactReader(site.url)
    found = reader.find(FactQuery(subtype=ActStage.BEGUN), order=FactOrder.ARRIVAL).facts
    ends = reader.ends(found)
    reader.close()
    return found, ends


def ready(site, command):
    """Prepare all that *command* acts on; return the acts that it does, and its arguments."""
    driver, kinds = DRIVERS[command]
    arguments = driver(site)
    site.acts()
    site.at_last()
    return kinds, arguments


@ALONE
def test_each_act_off_the_ledger_is_begun_in_the_facts_and_its_end_says_so(site, command):
    kinds, arguments = ready(site, command)
    known = len(begun(site)[0])
    site.run(*command.split(), *arguments)
    told = site.acts()
    (one,) = begun(site)[0][known:]
    assert (one.data["by"], one.data["origin"]) == (person(), "cli")
    assert one.data["act"] in kinds
    assert one.data["subject"]
    assert {fact.resolves for fact in told if fact.subtype not in ON_THE_WAY} == {one.id}


@ALONE
def test_an_act_whose_process_is_killed_behind_it_has_begun_and_never_ended(site, command):
    kinds, arguments = ready(site, command)
    known = len(begun(site)[0])
    with dying(site, at_once=False):
        site.run(*command.split(), *arguments)
    assert site.acts() == []
    found, ends = begun(site)
    (one,) = found[known:]
    assert one.id not in ends
    assert one.data["act"] in kinds
    shown = " ".join(site.run("fact", "list", "--subtype", "act_begun").output.split())
    assert "no end" in shown


@ALONE
def test_an_act_is_not_done_before_the_facts_have_it_that_it_begins(site, command):
    kinds, arguments = ready(site, command)
    with dying(site, at_once=True), pytest.raises(Killed):
        site.run(*command.split(), *arguments)
    site.run(*command.split(), *arguments, *AGAIN.get(command, ()))  # all of it was left to do
    assert [fact.subtype for fact in site.acts()] == kinds
