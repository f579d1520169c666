"""Letters of other apps reach them without a person, and none is lost on the way."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.contracts.ledger import letter_of
from tests.hand_clock import HandClock
from tests.judging import classifier, evidence_of

from angzarr import Angzarr
from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.ledger.database import LedgerDatabase
from angzarr.adapters.sql.ledger.groups import SqlPeers
from angzarr.adapters.sql.ledger.store import SqlLedger
from angzarr.analysis.classification.classify import Unattended
from angzarr.analysis.classification.evidence_collector import EvidenceCollector
from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.ledger.failure import Unreadable
from angzarr.analysis.ledger.replay_options import ReplayOrder
from angzarr.analysis.ledger.transition import Action
from angzarr.analysis.replay.replay import ReplayTargets
from angzarr.analysis.worker.decisions import DecisionMaker
from angzarr.analysis.worker.intake import MOST_APPS, MOST_TRIES, Handover, Intake, OtherApps
from angzarr.dead_letters.codec import encode, read_receipt
from angzarr.dead_letters.letter import Refusal
from angzarr.dead_letters.queue import TooLarge
from angzarr.errors import DeadLetterQueueUnavailable, LedgerUnavailable
from sqlite_ledger import SqliteLedger


class Queues:
    """The queues of all domains; bytes stay until they are done with."""

    def __init__(self) -> None:
        self.lying: dict[str, list[tuple[bytes, str]]] = {}
        self.answer: str | Exception | None = None

    def send(self, domain, letter):
        encoded = encode(letter)
        self.lying.setdefault(domain, []).append((encoded.body, encoded.content_type))

    def receive(self, domains, *, limit, wait):
        return [
            read_receipt(domain, *one, one)
            for domain in domains
            for one in self.lying.get(domain, [])
        ][:limit]

    def done(self, receipts):
        for one in receipts:
            self.lying[one.domain].remove(one.handle)

    def put_raw(self, letters):
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is None:
            for one in letters:
                assert one.record is None
                self.lying.setdefault(one.domain, []).append((one.raw, one.content_type))
        return [self.answer] * len(letters)

    def put(self, letters):
        raise AssertionError("a letter is given on as it came, not written anew")

    def close(self):
        pass


class Analyst:
    """The analysis worker of one app, as far as it files."""

    def __init__(self, name, queues, ledger=None):
        self.clock = HandClock()
        self.ledger = ledger or SqliteLedger(self.clock)
        self.domains = [name, "unknown"]
        self.queues = queues
        self.start()

    def start(self):
        others = OtherApps(self.domains[0], frozenset(self.domains))
        limits = Unattended(oldest=timedelta(days=30), of_another=others.problem)
        deciding = DecisionMaker(
            ledger=self.ledger, name="analysis@here",
            gathering=EvidenceCollector(
                peers=SqlPeers(SqliteLedger().database), obstacle=lambda _one: "", clock=self.clock
            ),
            classify=replace(classifier(), unattended=limits),
        )  # fmt: skip
        handover = Handover(queue=self.queues, deciding=deciding, others=others)
        self.intake = Intake(
            queue=self.queues, deciding=deciding, clock=self.clock, domains=self.domains,
            handover=handover,
        )  # fmt: skip

    def turn(self):
        return self.intake.turn(timedelta())

    def entries(self):
        return {one.event_id: one for one in self.ledger.get_failed_events(status=None).entries}


def letter_by(app, event_id, domain="unknown"):
    return replace(letter_of(event_id), component=app, domain=domain)


@pytest.fixture
def queues():
    queues = Queues()
    for app in ("shop", "blog"):
        queues.send("unknown", letter_by(app, f"of-{app}"))
    return queues


def test_each_app_takes_its_own_and_has_what_the_other_read(queues):
    bytes_before = list(queues.lying["unknown"])
    shop, blog = Analyst("shop", queues), Analyst("blog", queues)
    assert shop.turn() == 2
    assert queues.lying == {"unknown": [], "blog": [bytes_before[1]]}
    assert blog.turn() == 1
    assert not any(queues.lying.values())
    assert shop.entries()["of-shop"].status is Status.WAITING
    assert blog.entries()["of-blog"].status is Status.WAITING
    given = shop.entries()["of-blog"]  # here it is kept as well, and asks nobody for anything
    assert (given.status, given.evidence) == (Status.ARCHIVED, "given on to angzarr-dlq-blog")


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("known_to_both", [False, True])
def test_apps_with_one_ledger_lose_nothing_by_it(queues, kind, known_to_both, tmp_path):
    ledger = SqliteLedger(HandClock())
    if kind == "sqlite":
        engine = build_engine(f"sqlite:///{tmp_path / 'ledger.db'}")
        ledger = SqlLedger(LedgerDatabase(engine), HandClock())
    shop, blog = Analyst("shop", queues, ledger), Analyst("blog", queues, ledger)
    shop.turn()
    assert blog.turn() == 1
    if known_to_both:  # the queue gave it twice: it changes nothing more
        queues.send("blog", letter_by("blog", "of-blog"))
        blog.turn()
    for name in ("of-shop", "of-blog"):
        entry = shop.entries()[name]
        assert (entry.status, entry.occurrences) == (Status.WAITING, 1)
    ledger.close()


@pytest.mark.parametrize("answer", ["no right", DeadLetterQueueUnavailable("no right")])
def test_what_its_queue_does_not_take_is_tried_and_then_held_here(queues, answer):
    shop = Analyst("shop", queues)
    queues.answer = answer
    for _ in range(MOST_TRIES):
        with pytest.raises(DeadLetterQueueUnavailable, match="no right"):
            shop.turn()
        assert len(queues.lying["unknown"]) == 2  # still where they were
    assert shop.turn() == 2
    held = shop.entries()["of-blog"]
    assert held.status is Status.HELD
    assert "the app 'blog' wrote it: replay it there" in held.evidence
    assert "angzarr-dlq-blog did not take it (no right)" in held.evidence
    assert shop.entries()["of-shop"].status is Status.WAITING
    queues.send("unknown", letter_by("blog", "next"))
    assert shop.turn() == 1  # nobody waits for that queue again
    assert shop.entries()["next"].status is Status.HELD


def test_what_is_too_large_for_its_queue_is_held_at_once(queues):
    queues.answer = TooLarge("too large")
    shop = Analyst("shop", queues)
    assert shop.turn() == 2
    assert shop.entries()["of-blog"].status is Status.HELD


def test_a_short_outage_of_its_queue_needs_nobody(queues):
    shop = Analyst("shop", queues)
    queues.answer = DeadLetterQueueUnavailable("away")
    with pytest.raises(DeadLetterQueueUnavailable):
        shop.turn()
    queues.answer = None
    assert shop.turn() == 2
    assert len(queues.lying["blog"]) == 1
    assert (shop.entries()["of-blog"].status, shop.entries()["of-blog"].occurrences) == (
        Status.ARCHIVED, 1,
    )  # fmt: skip


def test_nothing_leaves_its_queue_before_the_ledger_has_it(queues, monkeypatch):
    shop = Analyst("shop", queues)

    def away(*_failures, **_how):
        raise LedgerUnavailable("away")

    monkeypatch.setattr(shop.ledger, "add_failed_events", away)
    with pytest.raises(LedgerUnavailable):
        shop.turn()
    assert len(queues.lying["unknown"]) == 2
    assert "blog" not in queues.lying


def test_a_worker_that_dies_after_it_gave_a_letter_on_gives_it_once_more(queues, monkeypatch):
    shop = Analyst("shop", queues)
    with monkeypatch.context() as patched:
        patched.setattr(queues, "done", lambda _receipts: (_ for _ in ()).throw(OSError("dies")))
        with pytest.raises(OSError, match="dies"):
            shop.turn()
    shop.start()
    assert shop.turn() == 2
    blog = Analyst("blog", queues)
    assert blog.turn() == 2
    assert blog.entries()["of-blog"].occurrences == 1


def test_names_of_apps_make_no_queues_without_end():
    queues = Queues()
    for number in range(MOST_APPS + 5):
        queues.send("unknown", letter_by(f"app-{chr(97 + number)}", f"e{number}"))
    shop = Analyst("shop", queues)
    shop.turn()
    assert len([name for name in queues.lying if name != "unknown"]) == MOST_APPS
    held = [one for one in shop.entries().values() if one.status is Status.HELD]
    assert len(held) == 5
    assert not queues.lying["unknown"]


def test_a_letter_is_given_on_once(queues):
    """It lies in its app's queue then, whoever reads that."""
    reader = Analyst("blog-2", queues)
    reader.domains.append("blog.eu")
    reader.start()
    queues.lying.clear()
    queues.send("blog.eu", letter_by("blog-eu", "e1"))  # one queue with that of blog-eu
    assert reader.turn() == 1
    assert reader.entries()["e1"].status is Status.HELD
    assert "blog-eu" not in queues.lying


SHOP = OtherApps("shop", frozenset({"shop", "order", "unknown"}))


def letter(component="blog", domain="unknown", **fields):
    return replace(letter_of(**fields), component=component, domain=domain)


@pytest.mark.parametrize("name", ["blog", "blog.tasks", "Blog"])
def test_a_letter_of_another_app_names_it_and_what_to_do(name):
    said = SHOP.problem(letter(name))
    assert said.startswith(f"the app {name!r} wrote it: replay it there, ")
    assert "--to-handler" in said


def test_what_a_letter_calls_its_app_is_shown_short_and_on_one_line():
    said = SHOP.problem(letter("x\n\x1b[2J" + "y" * 9_999))
    assert len(said) < 250
    assert said.isprintable()


@pytest.mark.parametrize(
    "made",
    [
        {"component": "shop"},
        {"component": "order"},  # a name that this app reads as well
        {"component": "angzarr"},  # it has no name
        {"component": ""},
        {"component": "blog", "domain": "order"},  # in a queue of ours
    ],
)
def test_its_own_and_what_is_nobodys_in_particular_is_nobody_elses(made):
    assert SHOP.problem(letter(**made)) == ""


def test_what_is_no_letter_or_holds_no_task_is_nobody_elses():
    theirs = letter()
    bare = replace(theirs, message=replace(theirs.message, headers={}))
    raw = Unreadable(
        domain="unknown", raw=b"?", content_type="x/y", problem="?",
        received_at=theirs.sent_to_dlq_at,
    )  # fmt: skip
    assert [SHOP.problem(one) for one in (bare, raw)] == ["", ""]


@pytest.mark.parametrize("action", ["replay", "wait", "compensate", "skip", "archive", "hold"])
def test_nothing_becomes_of_it_by_itself_whatever_a_rule_says(action):
    rule = {
        "name": "any", "when": {"category": "transient"},
        "then": {"class": "unknown", "action": action},
    }  # fmt: skip
    limits = Unattended(oldest=timedelta(days=30), of_another=SHOP.problem)
    judge = replace(classifier([rule]), unattended=limits)
    known = {"undone_by": "orders.undo"}
    assert judge(evidence_of(letter("shop"), **known)).action is Action(action)
    held = judge(evidence_of(letter(), **known))
    assert held.action is Action.HOLD
    assert "the app 'blog' wrote it: replay it there" in held.evidence


def test_a_task_of_that_name_here_gets_it_by_a_persons_redirect_alone():
    targets = ReplayTargets(
        tasks={"orders.sync", "orders.mend"}, queues={"orders"}, of_another=SHOP.problem
    )
    assert targets.problem(letter("shop")) == ""
    assert targets.problem(letter()).startswith("the app 'blog' wrote it")
    assert isinstance(targets.cleared(letter()), Refusal)
    assert targets.problem(letter(), ReplayOrder(to_handler="orders.mend")) == ""
    assert targets.problem(letter(), ReplayOrder(to_queue="orders")) == ""


def test_an_app_leaves_to_people_what_another_wrote():
    shop = Angzarr("shop", broker="memory://", set_as_current=False)
    judge, targets = shop.ops.dlq_classifier(lambda: 0.5), shop.ops.replay_targets()
    for says in (judge.unattended.of_another, targets.of_another):
        assert "'blog'" in says(letter())
        assert says(letter("shop")) == ""
    blog = Angzarr("blog", broker="memory://", set_as_current=False)
    assert blog.ops.replay_targets().of_another(letter()) == ""
