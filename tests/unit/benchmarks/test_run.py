from __future__ import annotations

import json

import pytest
import run
from figures import FIGURES
from harness import servers
from harness.figure import Aim, Figure, Measured, NotMeasured


def test_no_keys_means_every_figure():
    assert run.choose("") == list(FIGURES.values())


def test_keys_are_taken_in_the_order_asked_for():
    chosen = run.choose("import_ms, claim_time_ratio")
    assert [figure.key for figure in chosen] == ["import_ms", "claim_time_ratio"]


def test_an_unknown_key_is_refused_with_those_there_are(capsys):
    assert run.main(["--only", "import_sm"]) == 2
    said = capsys.readouterr().err
    assert "'import_sm'" in said
    assert "import_ms" in said


@pytest.mark.parametrize("figure", FIGURES.values(), ids=FIGURES)
def test_every_aim_can_be_judged(figure):
    assert Aim.of(figure.aim).reached(Aim.of(figure.aim).bound)


def test_a_server_in_the_environment_wins_over_the_state_file(monkeypatch, tmp_path):
    state = tmp_path / "state.json"
    state.write_text(json.dumps({"redis": {"addresses": {servers.REDIS: "redis://started"}}}))
    monkeypatch.setattr(servers, "STATE", state)
    monkeypatch.delenv(servers.REDIS, raising=False)
    assert servers.address(servers.REDIS) == "redis://started"
    monkeypatch.setenv(servers.REDIS, "redis://given")
    assert servers.address(servers.REDIS) == "redis://given"


def test_a_missing_server_is_one_sentence_with_the_cure(monkeypatch, tmp_path):
    monkeypatch.setattr(servers, "STATE", tmp_path / "none.json")
    monkeypatch.delenv(servers.AMQP, raising=False)
    with pytest.raises(servers.MissingServer, match=r"make servers-up.*ANGZARR_TEST_AMQP_URL"):
        servers.address(servers.AMQP)


def test_a_figure_that_cannot_be_measured_leaves_the_others_alone(monkeypatch, tmp_path, capsys):
    kept: dict[str, object] = {}
    monkeypatch.setattr(run.book, "merge", kept.update)
    monkeypatch.setattr(run.book, "read", lambda: kept)
    monkeypatch.setattr(run.page.report, "REPORT", tmp_path / "benchmarks.md")
    told = {"title": "t", "unit": "ms", "aim": "≤ 5 ms", "against": "x", "how": "y"}

    def fails():
        raise NotMeasured("a server is not there")

    broken = Figure(key="broken", measure=fails, **told)
    sound = Figure(key="sound", measure=lambda: Measured(values=[1.0] * 5), **told)
    monkeypatch.setattr(run, "FIGURES", {"broken": broken, "sound": sound})

    assert run.main([]) == 1

    assert list(kept) == ["sound"]
    assert "`broken` t | not measured" in (tmp_path / "benchmarks.md").read_text()
    assert "broken: a server is not there" in capsys.readouterr().err
