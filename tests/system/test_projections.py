"""Projections in real workers: what fails, is missing or goes away holds up its own aggregate and
nothing else, and in the end each read model is the fold of the events, each written once.
"""

from __future__ import annotations

import json
import time
from contextlib import closing
from datetime import timedelta

import pytest
from click.testing import CliRunner

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.event_store.books import SqlEventBooks
from angzarr.aggregates.book import Address, Write
from angzarr.analysis.ledger.entry import Status
from angzarr.cli.main import main
from angzarr.dead_letters.letter import Reason
from angzarr.events.event import Event
from angzarr.ordering.lane import Why
from angzarr.wiring.analysis_worker import open_worker
from contracts.books import deciding
from polling import wait_until
from redis_servers import PrivateRedis
from system.order_site import OrderSite

#: How long the servers of one test are away, in seconds.
OUTAGE = 3
EVENTS = 10


@pytest.fixture
def order_site(tmp_path, monkeypatch, unique_name, postgresql_url, redis_site_environment):
    sites = []

    def make(lanes=postgresql_url, **environment):
        everything = {
            **redis_site_environment, "ANGZARR_PREFIX": unique_name, "ROAD_PREFIX": unique_name,
            "ANGZARR_ORDERING__URL": lanes, "ORDER_HASTE": "1", **environment,
        }  # fmt: skip
        sites.append(OrderSite(tmp_path, everything, monkeypatch, postgresql_url))
        return sites[-1]

    yield make
    for site in sites:
        site.close()


def said(site, event, handler):
    """Return the lines of the log by which settled deliveries of *handler* are told as *event*."""
    found = []
    for line in site.text().splitlines():
        try:
            fields = json.loads(line)
        except ValueError:
            continue
        if (fields.get("event"), fields.get("handler")) == (event, handler):
            found.append(fields)
    return found


# -- what fails for good -----------------------------------------------------------------------


def angzarr(*arguments):
    result = CliRunner().invoke(main, ["-A", "order_app", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def wait_entry(site, worker, status):
    """Let the analysis worker work until its one entry is in *status*."""

    def found():
        (entry,) = wait_entries(site, worker, 1)
        return entry.status is status and entry

    return wait_until(found, f"an entry that is {status}")


@pytest.mark.parametrize("way", ["replay", "skip"])
def test_what_follows_a_dead_letter_waits_for_it_and_nobody_else_does(order_site, tmp_path, way):
    site = order_site(ORDER_SECOND="1", ANGZARR_LEDGER=f"sqlite:///{tmp_path}/ledger.db")
    everything = {"bad": range(6), "good": range(6)}
    with site.workers(2), open_worker(site.app.ops, [site.domain]) as worker:
        for n in range(6):
            fate = "give up@totals" if n == 2 else "fine"
            site.publish(site.entry("bad", n, fate), site.entry("good", n))
        entry = wait_entry(site, worker, Status.HELD)
        site.wait_model({"bad": range(2), "good": range(6)})
        site.wait_model(everything, table=site.module.SECOND)
        site.wait_runs({root: list(range(6)) for root in everything})
        wait_until(lambda: len(site.waiting(site.totals)) == 4, "all that follow to be parked")
        known = [(one.sequence, one.why) for one in site.waiting(site.totals, "bad")]
        assert known == [(2, Why.DEAD_LETTER), *((n, Why.EARLY) for n in (3, 4, 5))]
        assert site.lanes.behind([entry.letter_id]) == {entry.letter_id: 3}
        (summary,) = site.lanes.summaries([site.totals])
        assert (summary.lanes, summary.parked, summary.blocked) == (2, 3, 1)
        if way == "replay":
            site.mend()
            angzarr("dlq", "replay", entry.id, "--yes")
        else:
            everything["bad"] = (0, 1, 3, 4, 5)
            angzarr("dlq", "skip", entry.id, "--note", "never mind", "--yes")
        site.wait_model(everything)
        wait_until(site.nothing_waits, "the lanes to be empty")
        if way == "replay":
            wait_entry(site, worker, Status.RESOLVED)


# -- what fails for a while --------------------------------------------------------------------


def test_what_follows_a_retry_waits_for_it_and_uses_no_attempt(order_site):
    """Each type of event is retried by its own policy."""
    site = order_site()
    with site.workers(2):
        flaky = {2: "Entry", 4: "Remark"}
        fates = {n: {"fate": "flaky@totals", "kind": kind} for n, kind in flaky.items()}
        site.publish(*(site.entry("a", n, **fates.get(n, {})) for n in range(7)))
        site.wait_model({"a": range(7)})
        wait_until(lambda: len(site.runs().get("a", [])) == 6, "all to be listed")
        wait_until(lambda: len(said(site, "event_handled", site.totals)) == 7, "seven lines")
    retries = {
        line["event_id"].split("-")[1]: (line["max_attempts"], line["delay_ms"])
        for line in said(site, "retrying_after_failure", site.totals)
    }
    assert retries == {"2": (4, 2000), "4": (3, 200)}
    attempts = {
        line["event_id"].split("-")[1]: line["attempt"]
        for line in said(site, "event_handled", site.totals)
    }
    assert attempts == {str(n): 2 if n in (2, 4) else 1 for n in range(7)}
    assert site.runs() == {"a": [0, 1, 2, 3, 5, 6]}, "a type that it does not take moves its lane"


# -- what is missing ---------------------------------------------------------------------------


def test_a_missing_event_is_sent_from_the_books_or_reported(order_site, postgresql_url):
    site = order_site(ANGZARR_BOOKS=postgresql_url, ANGZARR_ORDERING__GAP_AFTER="1")
    kept = write_book(site, postgresql_url, "booked", 6)
    with site.workers(2):
        site.publish(*(kept[n] for n in (0, 3, 5)), site.entry("lost", 0), site.entry("lost", 2))
        site.wait_model({"booked": range(6), "lost": [0]})
        missing = f"gap: the event of sequence 1 of {site.domain}/lost for {site.totals} is missing"
        wait_until(lambda: missing in site.text(), "the gap to be reported")
        wait_until(lambda: '"sequence_gap"' in site.text(), "the gap to be a fact")
        assert f"{site.domain}/booked for {site.totals} is missing" not in site.text()
        site.publish(site.entry("lost", 1))
        site.wait_model({"booked": range(6), "lost": range(3)})
        wait_until(lambda: site.runs() == {"booked": list(range(6)), "lost": [0, 1, 2]}, "both")
        wait_until(site.nothing_waits, "the lanes to be empty")


def write_book(site, url, root, count):
    """Save events of an aggregate, and publish none of them."""
    engine = build_engine(url)
    books = SqlEventBooks(engine)
    events = [
        Event(id=f"{root}-{n}-{site.module.PREFIX}", type="Entry", data={"n": n, "fate": "fine"})
        for n in range(count)
    ]
    kept = books.write(Write(address=Address(site.domain, root), decision=deciding(*events)))
    books.close()
    return kept.decision.events


# -- what is away ------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["cut", "stall"])
def test_an_outage_of_the_lanes_costs_time_and_nothing_else(order_site, cable, postgresql_url, how):
    proxy, lanes = cable(postgresql_url)
    site = order_site(lanes)
    roots = [f"a{number}" for number in range(20)]
    with site.workers(2):
        site.publish(*(site.entry(root, n) for n in range(4) for root in roots))
        wait_until(lambda: len(site.ran("listed")) > 5, "some to be run")
        getattr(proxy, how)()
        site.publish(*(site.entry(root, n) for n in range(4, EVENTS) for root in roots))
        time.sleep(OUTAGE)
        proxy.mend()
        in_the_end(site, roots)
    assert how == "stall" or "holding event" in site.text()


def in_the_end(site, roots):
    """Wait until all is done; nothing was retried, and nothing is a letter."""
    site.wait_model({root: range(EVENTS) for root in roots})
    site.wait_steps({root: range(EVENTS) for root in roots})
    wait_until(site.nothing_waits, "the lanes to be empty")
    for event in ("retrying_after_failure", "event_sent_to_dlq"):
        assert said(site, event, site.totals) == []


def test_a_redis_that_is_killed_amid_it_costs_time_and_nothing_else(order_site, tmp_path):
    """It is the broker and has the claims; it comes back with what it had."""
    with PrivateRedis(tmp_path / "redis", durable=True) as server:
        site = order_site(ROAD_BROKER=server.url, ROAD_BACKEND=server.url, ANGZARR_STORE=server.url)
        roots = [f"a{number}" for number in range(20)]
        with site.workers(2):
            for half in (range(EVENTS // 2), range(EVENTS // 2, EVENTS)):
                had = len(site.ran("listed"))
                site.publish(*(site.entry(root, n) for n in half for root in roots))
                wait_until(lambda had=had: len(site.ran("listed")) > had + 5, "some to be run")
                server.kill()
                time.sleep(1)
                server.start()
            in_the_end(site, roots)


# -- bounds, and messages of anybody -------------------------------------------------------------


def test_beyond_a_full_lane_nothing_is_lost_and_the_order_is_kept(order_site):
    site = order_site(ANGZARR_ORDERING__MOST_PARKED="3")
    with site.workers(2):
        site.publish_range("a", *range(EVENTS - 1, 0, -1))
        for handler in (site.totals, site.module.LISTED):
            full = f"lane_full: 3 events of {site.domain}/a wait for {handler}"
            wait_until(lambda full=full: full in site.text(), full)
        assert len(site.waiting(site.totals)) == 3
        site.publish_range("a", 0)
        in_the_end(site, ["a"])


#: What messages say that are no events of any aggregate.
PLACELESS = {
    "no root": {"angzarr-root": None},
    "no sequence": {"angzarr-sequence": None},
    "negative": {"angzarr-sequence": -1},
    "huge": {"angzarr-sequence": 2**70},
    "no number": {"angzarr-sequence": "first"},
    "strange edition": {"angzarr-edition": "a\x00b"},
    "long root": {"angzarr-root": "r" * 5000},
    "another domain": {"angzarr-domain": "elsewhere"},
}


def test_messages_that_nobody_can_place_or_read_are_letters_and_hold_up_their_own_lane(
    order_site, tmp_path
):
    site = order_site(ANGZARR_LEDGER=f"sqlite:///{tmp_path}/ledger.db")
    ill = ("ill", "unread", "untyped")

    def known(root):
        return [(one.sequence, one.why) for one in site.waiting(site.totals, root)]

    with site.workers(2), open_worker(site.app.ops, [site.domain]) as worker:
        site.publish_range("a", 0, 2)
        for number, (root, headers) in enumerate(PLACELESS.items()):
            named = {"angzarr-event-id": f"{number}-{site.module.PREFIX}", **headers}
            site.send_by_hand(site.totals, root=root, n=0, headers=named)
        entries = wait_entries(site, worker, len(PLACELESS))
        assert {entry.reason for entry in entries} == {Reason.UNDELIVERABLE}
        wait_until(lambda: site.waiting(site.totals), "the early one to be parked")
        assert [one.lane.address.root for one in site.waiting(site.totals)] == ["a"]

        site.send_by_hand(site.totals, root="ill", n=0, args=[{"n": "no number"}])
        site.send_raw(site.totals, b"{ no JSON", root="unread", n=0)
        site.send_by_hand(site.totals, root="untyped", n=0, headers={"angzarr-event-type": None})
        for root in ill:
            site.publish_range(root, 2, 1)
        entries = wait_entries(site, worker, len(PLACELESS) + len(ill), but=entries)
        for root in ill:
            wait_until(lambda root=root: len(known(root)) == 3, f"two to wait behind {root}")
            assert known(root) == [(0, Why.DEAD_LETTER), (1, Why.EARLY), (2, Why.EARLY)]
        site.publish_range("a", 1)
        site.wait_model({"a": range(3)})
        letters = [entry.letter_id for entry in entries]
        assert site.lanes.behind(letters) == dict.fromkeys(letters, 2)

        for entry in entries:
            assert entry.status is Status.HELD, "archived it would hold up the others unseen"
            angzarr("dlq", "skip", entry.id, "--yes")
        site.wait_model({"a": range(3), **dict.fromkeys(ill, (1, 2))})
        wait_until(lambda: not site.waiting(site.totals), "the lanes to be empty")


def wait_entries(site, worker, number, but=()):
    """Let the analysis worker file letters until there are *number*; return those besides *but*."""

    def found():
        worker.step(wait=timedelta(milliseconds=100))
        with closing(site.app.ops.open_ledger()) as ledger:
            entries = ledger.get_failed_events(status=None).entries
        return len(entries) >= number and entries

    known = {entry.id for entry in but}
    return [one for one in wait_until(found, "the letters to be filed") if one.id not in known]
