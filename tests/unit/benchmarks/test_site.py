from __future__ import annotations

import pytest
from harness.figure import NotMeasured
from harness.site import Load, Side, site

LOAD = Load(broker="redis://b", queue="q", events=1, pool="threads", concurrency=2, prefetch=64)


def test_a_side_s_processes_are_told_what_to_do_and_their_own_environment_wins():
    side = Side(app="workers.x", environment={"BENCH_TRANSPORT": "t", "BENCH_QUEUE": "other"})
    with site(side, LOAD) as at:
        told = at.environment
        assert told["BENCH_BROKER"] == "redis://b"
        assert told["BENCH_PREFETCH"] == "64"
        assert told["BENCH_TRANSPORT"] == "t"
        assert told["BENCH_QUEUE"] == "other"
        assert told["BENCH_FOLDER"] == str(at.folder)
        assert at.folder.is_dir()
    assert not at.folder.exists()


def test_a_program_that_fails_leaves_its_figure_unmeasured():
    with (
        site(Side(app="workers.x", environment={}), LOAD) as at,
        pytest.raises(NotMeasured, match=r"workers\.nothing ended with 1"),
    ):
        at.run("workers.nothing")
