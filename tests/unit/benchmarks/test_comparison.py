from __future__ import annotations

import compare
import pytest
from harness.figure import NotMeasured
from peers.catalogue import CATALOGUE
from peers.comparison import WORKLOADS, Workload
from peers.comparison import compare as run_in_turn

DRAMATIQ, RELIER, CELERY = (CATALOGUE[name] for name in ("dramatiq", "Relier", "Celery solo"))


@pytest.fixture(autouse=True)
def _installed(monkeypatch):
    monkeypatch.setattr("peers.peer.Peer.version", lambda peer: f"1 of {peer.name}")


def counted(ran, *, fails=False, broken=None):
    def run(peer, kind):
        ran.append((peer.name, kind))
        if peer is broken:
            raise NotMeasured("it is broken")
        return {"rate": 1000.0 * len(ran)}

    return Workload(key="k", title="t", conditions={"events": 1}, run=run, fails=fails)


def test_peers_run_in_turn_and_the_median_round_counts():
    ran = []
    found = run_in_turn("redis", counted(ran), [DRAMATIQ, CELERY], 3)
    assert [name for name, _ in ran] == ["dramatiq", "Celery solo"] * 3
    assert found["rows"]["dramatiq"] == {"rate": 3000.0, "release": "1 of dramatiq"}
    assert found["conditions"]["rounds"] == 3
    assert found["conditions"]["events"] == 1


def test_a_peer_that_cannot_be_measured_leaves_the_others_alone_and_is_not_tried_again():
    ran = []
    found = run_in_turn("redis", counted(ran, broken=DRAMATIQ), [DRAMATIQ, CELERY], 2)
    assert [name for name, _ in ran] == ["dramatiq", "Celery solo", "Celery solo"]
    assert found["rows"]["dramatiq"] == {"reason": "it is broken"}
    assert found["rows"]["Celery solo"]["rate"] > 0


def test_a_peer_without_the_broker_is_left_out():
    assert list(run_in_turn("rabbitmq", counted([]), [DRAMATIQ, RELIER], 1)["rows"]) == ["dramatiq"]


def test_a_peer_that_retries_nothing_has_no_part_where_handlers_fail():
    ran = []
    found = run_in_turn("redis", counted(ran, fails=True), [RELIER], 1)
    assert ran == []
    assert "retries no error" in found["rows"]["Relier"]["reason"]


def test_nothing_named_means_everything():
    assert compare.choose_workloads("") == list(WORKLOADS.values())
    assert compare.choose_peers("") == list(CATALOGUE.values())


def test_peers_are_chosen_by_the_beginning_of_their_names():
    chosen = [peer.name for peer in compare.choose_peers("rq, celery")]
    assert chosen == ["Celery solo", "Celery threads", "Celery prefork", "RQ"]


@pytest.mark.parametrize("arguments", [["--only", "nopo"], ["--peers", "nopo"]])
def test_an_unknown_name_is_refused_with_those_there_are(arguments, capsys):
    assert compare.main(arguments) == 2
    said = capsys.readouterr().err
    assert "'nopo'" in said
    assert "noop" in said or "dramatiq" in said


def test_a_workload_replaces_its_own_and_keeps_the_others(monkeypatch, tmp_path):
    kept = {"peers": {"redis": {"io": {"rows": {}, "conditions": {}}}, "rabbitmq": {}}}
    monkeypatch.setattr(compare.book, "read", lambda: kept)
    monkeypatch.setattr(compare.book, "merge", lambda entries: kept.update(entries) or kept)
    monkeypatch.setattr(compare.page.report, "REPORT", tmp_path / "benchmarks.md")
    monkeypatch.setattr(compare.page.section, "draw", lambda found: None)
    found = {"rows": {"RQ": {"reason": "no"}}, "conditions": {}}
    monkeypatch.setattr(compare, "compare", lambda *asked: found)

    assert compare.main(["--only", "noop", "--broker", "redis"]) == 1

    assert kept["peers"]["redis"] == {"io": {"rows": {}, "conditions": {}}, "noop": found}
    assert "RQ was not measured: no" in (tmp_path / "benchmarks.md").read_text()
