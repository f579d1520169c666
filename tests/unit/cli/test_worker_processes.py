"""What each process of `angzarr worker` is started with."""

from __future__ import annotations

import pytest

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


def test_there_is_at_least_one_core():
    assert cores() >= 1


@pytest.mark.parametrize("joined", ["-linfo", "-Qshop", "-QBulk", "-Xshop", "-Ofair", "-fBeat.log"])
def test_the_value_of_an_option_of_celerys_is_read_as_no_option_of_ours(joined):
    read = worker.make_context("worker", [joined, "-n", "shop@%h"]).params
    assert read["others"] == (joined[:2], joined[2:])
    assert (read["hostname"], read["schedule"], read["beat"]) == ("shop@%h", None, False)
