from __future__ import annotations

from peers import section
from peers.catalogue import CATALOGUE


def workload(rows, **conditions):
    return {"conditions": {"events": 2000, "rounds": 1, **conditions}, "rows": rows}


def drained(rate, handled=2000):
    return {"rate": rate, "cpu_ms": 0.5, "pss_mib": 60.0, "rss_mib": 90.0, "handled": handled,
            "release": "2.2.1"}  # fmt: skip


FOUND = {
    "redis": {
        "noop": workload({"dramatiq": drained(4270.0), "RQ": drained(33.5, handled=1990)}),
        "io": workload({"dramatiq": drained(2900.0), "RQ": {"reason": "it did\nnot start"}}),
        "latency": workload({"dramatiq": {"p50_ms": 1.5, "p99_ms": 4.25, "release": "2.2.1"}}),
        "processes": workload({"dramatiq": {"1": 2000.0, "8": 4000.0, "release": "2.2.1"}}),
    }
}


def test_without_measurements_it_says_what_each_peer_is_and_promises():
    page = section.render({})
    for peer in CATALOGUE.values():
        assert f"| {peer.name} | - |" in page
        assert peer.killed in page
    assert "###" not in page


def test_peers_stand_side_by_side_in_the_order_of_the_catalogue():
    page = section.render(FOUND)
    assert "### On Redis" in page
    assert "### On RabbitMQ" not in page
    assert "| dramatiq | 4,270 | 2,900 | 0.5 | 60 | 90 | 1.5 | 4.25 |" in page
    assert page.index("| dramatiq | 4,270") < page.index("| RQ | 33.5")
    assert "| dramatiq | 2.2.1 |" in page


def test_a_rate_of_a_peer_that_was_not_through_is_marked():
    assert "| RQ | 33.5* | - |" in section.render(FOUND)


def test_what_was_not_measured_says_why_in_one_line():
    page = section.render(FOUND)
    assert "RQ was not measured: it did\n" in page
    assert "not start" not in page


def test_growth_has_a_column_for_each_size():
    page = section.render(FOUND)
    assert "| no-op /s by worker processes | 1 | 8 |" in page
    assert "| dramatiq | 2,000 | 4,000 |" in page


def test_every_picture_of_the_section_is_drawn(tmp_path, monkeypatch):
    drawn = []
    for kind in ("draw_bars", "draw_curves"):
        monkeypatch.setattr(section.plot, kind, lambda plot: drawn.append(plot["file"]))
    section.draw(FOUND)
    page = section.render(FOUND)
    assert sorted(drawn) == ["peers-redis-noop.svg", "peers-redis-processes.svg"]
    assert all(f"](figures/{file})" in page for file in drawn)
