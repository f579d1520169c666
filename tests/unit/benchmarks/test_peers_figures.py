from __future__ import annotations

import pytest
from figures import peers
from harness.figure import NotMeasured
from peers.catalogue import CATALOGUE, OURS
from peers.peer import RABBITMQ, REDIS
from peers.runs import PeerDrain, Work

TASKIQ, PREFORK = CATALOGUE["taskiq"], CATALOGUE["angzarr prefork"]


@pytest.fixture
def drains(monkeypatch):
    """Each run asked for, at rates and with ends that a test sets by the peer's name."""
    asked = []
    rates = {
        OURS.name: 6000.0, PREFORK.name: 1500.0, "taskiq": 3000.0, "Celery prefork": 1000.0,
        "Celery solo": 5000.0,
    }  # fmt: skip
    handled: dict[str, int] = {}

    def drain(peer, broker, work, events, *, durable):
        asked.append((peer.name, broker, durable, work))
        return PeerDrain(
            rate=rates[peer.name], cpu_ms=1, pss_mib=1, child_pss_mib=1, rss_mib=1,
            handled=handled.get(peer.name, events),
        )  # fmt: skip

    monkeypatch.setattr(peers, "drain", drain)
    monkeypatch.setattr("peers.peer.Peer.version", lambda _peer: "1")
    monkeypatch.setattr(peers.servers, "redis_version", lambda: "7")
    monkeypatch.setattr(peers.servers, "rabbitmq_version", lambda: "3")
    return asked, handled


def test_both_sides_drain_in_turn_on_the_same_kind_of_broker(drains):
    asked, _ = drains
    measured = peers.measure(TASKIQ, REDIS, durable=True)
    assert measured.values == [2.0] * 5
    ours, theirs = (OURS.name, REDIS, True, Work()), ("taskiq", REDIS, True, Work())
    assert asked[:4] == [ours, theirs] * 2
    assert "append-only" in measured.detail["broker"]


def test_a_peer_beside_gives_its_rate_and_no_part_of_the_ratio(drains):
    beside = [CATALOGUE["Celery solo"]]
    measured = peers.measure(CATALOGUE["Celery prefork"], RABBITMQ, beside=beside)
    assert measured.values == [6.0] * 5
    assert measured.detail["events_per_second_Celery_solo"] == 5000


def test_ours_has_to_be_through_and_a_peer_is_judged_by_what_it_did(drains):
    _, handled = drains
    handled["taskiq"] = 10
    assert peers.measure(TASKIQ, REDIS).values == [2.0] * 5
    handled[OURS.name] = 10
    with pytest.raises(NotMeasured, match=OURS.name):
        peers.measure(TASKIQ, REDIS)


def test_another_of_our_rows_may_be_the_one_that_is_measured_and_has_to_be_through(drains):
    asked, handled = drains
    work = Work(wait=0.005)
    assert peers.measure(TASKIQ, RABBITMQ, ours=PREFORK, work=work).values == [0.5] * 5
    assert asked[0] == (PREFORK.name, RABBITMQ, False, work)
    handled[PREFORK.name] = 10
    with pytest.raises(NotMeasured, match=PREFORK.name):
        peers.measure(TASKIQ, RABBITMQ, ours=PREFORK)
