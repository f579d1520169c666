"""What each process of `angzarr worker` is started with."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from angzarr.cli.worker import cores, worker
from angzarr.cli.worker_processes import log_options, node_name


@pytest.mark.parametrize(
    ("name", "second"),
    [
        ("celery@%h", "celery-2@%h"),
        ("shop@host.example", "shop-2@host.example"),
        ("%h", "celery-2@%h"),
    ],
)
def test_each_process_is_a_node_of_its_own(name, second):
    assert node_name(name, 2) == second


def test_beat_logs_where_the_processes_do():
    others = ["-Q", "a,b", "-l", "INFO", "--logfile=/tmp/x", "-E"]
    assert log_options(others) == ["-l", "INFO", "--logfile=/tmp/x"]


@pytest.mark.parametrize(
    ("limit", "number"),
    [("50000 100000\n", 1), ("150000 100000\n", 2), ("max 100000\n", 64), ("garbage", 64)],
)
def test_a_containers_limit_is_as_many_cores_as_it_allows(limit, number, tmp_path, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: range(64))
    (tmp_path / "cpu.max").write_text(limit)
    assert cores(tmp_path / "cpu.max") == number


def test_without_a_container_all_cores_count(tmp_path, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: range(3))
    assert cores(tmp_path / "missing") == 3


@pytest.mark.parametrize(
    ("variable", "installed", "says"),
    [("", None, "angzarr-workers[coroutines]"), ("1", object(), "USE_FAST_LOCALS")],
)
def test_coroutines_are_refused_where_they_cannot_run(variable, installed, says, monkeypatch):
    monkeypatch.setattr("angzarr.cli.worker.find_spec", lambda _name: installed)
    monkeypatch.setenv("USE_FAST_LOCALS", variable)
    ran = CliRunner().invoke(worker, ["--coroutines", "9"], obj="shop")
    assert ran.exit_code == 2
    assert says in ran.output


@pytest.mark.parametrize("joined", ["-linfo", "-Qshop", "-QBulk", "-Xshop", "-Ofair", "-fBeat.log"])
def test_the_value_of_an_option_of_celerys_is_read_as_no_option_of_ours(joined):
    read = worker.make_context("worker", [joined, "-n", "shop@%h"]).params
    assert read["others"] == (joined[:2], joined[2:])
    assert (read["hostname"], read["schedule"], read["beat"]) == ("shop@%h", None, False)
