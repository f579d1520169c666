"""Of an act whose facts are lost with their process, one sentence says which act it was."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from datetime import timedelta

import pytest
from tests.contracts.facts import facts_of
from tests.hand_clock import HandClock

from angzarr.adapters.memory.facts import MemoryFactLog
from angzarr.errors import StoreUnavailable
from angzarr.facts.act import ActKind
from angzarr.facts.act_log import ActLog
from angzarr.facts.fact_text import fact_text
from angzarr.facts.lost_acts import MOST_NAMED, tell_lost_act_lines, tell_lost_acts
from angzarr.facts.outbox_log import OutboxFactLog

PUT, PINNED = ActKind.CONFIGURATION_PUT, ActKind.CONFIGURATION_PINNED
APP = """
from angzarr import Angzarr

app = Angzarr(
    "shop", broker="memory://", store="memory://",
    facts={"url": "postgresql+psycopg://127.0.0.1:1/facts", "log": False},
    configuration={"url": "sqlite:///configurations.db"},
)
"""


def acted(*, by="ann", kind=PUT, subject="pricing", end="done"):
    """The facts of one act that ended so."""
    log = MemoryFactLog()
    try:
        with ActLog(facts=lambda: log, clock=HandClock()).recording(kind, subject, by=by) as act:
            if end == "raise":
                raise LookupError
            if end == "done":
                act.done({})
    except LookupError:
        pass
    return log.read()


def said(caplog):
    return [one.getMessage() for one in caplog.records if "act_not_rec" in one.getMessage()]


@pytest.mark.parametrize(
    ("end", "how"),
    [("done", "was done"), ("raise", "failed"), ("nothing", "changed nothing")],
)
@pytest.mark.parametrize("left", [slice(None), slice(1, None)])
def test_an_act_is_one_sentence_also_where_only_its_end_is_lost(caplog, end, how, left):
    tell_lost_acts(acted(end=end)[left])
    (line,) = said(caplog)
    assert line.startswith("act_not_recorded: configuration_put of pricing at ")
    assert f" by ann {how}, but the process ended" in line


def test_an_act_whose_end_is_still_to_come_was_begun(caplog):
    tell_lost_acts(acted()[:1])
    (line,) = said(caplog)
    assert " by ann was begun, but" in line


def test_other_facts_are_not_named(caplog):
    tell_lost_acts(facts_of("a", 3))
    assert caplog.records == []


def test_several_acts_are_named_in_their_order_up_to_a_bound(caplog):
    many = [fact for n in range(MOST_NAMED + 2) for fact in acted(subject=f"c{n}")]
    tell_lost_act_lines(["no fact", *map(fact_text, many)])
    *lines, last = said(caplog)
    assert [f" of c{n} at " in line for n, line in enumerate(lines)] == [True] * MOST_NAMED
    assert last == "act_not_recorded: of 2 more acts perhaps no fact tells"


def test_what_a_name_holds_stays_one_printable_line(caplog):
    tell_lost_acts(acted(subject="a:b\n\x1b[2J", by="eve\nact_not_recorded: all"))
    (line,) = said(caplog)
    assert "\n" not in line
    assert "\x1b" not in line
    assert "configuration_put of a:b" in line


class Away:
    """An outbox whose store is away."""

    def put(self, texts, /):
        raise StoreUnavailable("away")


def test_acts_that_wait_for_an_outbox_are_named_when_it_closes(caplog):
    log = OutboxFactLog(Away(), otherwise=MemoryFactLog())
    acts = ActLog(facts=lambda: log, clock=HandClock(), waited=timedelta(0))
    with acts.recording(PINNED, "pricing", by="ann") as act:
        act.done({})
    with caplog.at_level(logging.ERROR, "angzarr.facts"):
        log.close()
        log.close()
    (line,) = said(caplog)
    assert line.startswith("act_not_recorded: configuration_pinned of pricing at ")


def test_a_command_that_ends_while_facts_are_away_says_which_act_is_not_recorded(tmp_path):
    (tmp_path / "shop_without_facts.py").write_text(APP)
    command = ["-A", "shop_without_facts", "config", "put", "pricing", "-", "--by", "ann"]
    done = subprocess.run(
        [sys.executable, "-m", "angzarr", *command], cwd=tmp_path, input="1", text=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "pricing 1 is put, and current\n"), done.stderr
    (line,) = [one for one in done.stderr.splitlines() if one.startswith("act_not_recorded")]
    assert line.startswith("act_not_recorded: configuration_put of pricing at ")
    assert " by ann was done, but the process ended before the place of facts answered" in line
