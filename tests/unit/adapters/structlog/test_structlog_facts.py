from __future__ import annotations

import logging
from collections import UserDict

from tests.contracts.facts import AT, a_fact

from angzarr.adapters.structlog.facts import StructlogFactLog


class Unreadable(UserDict):
    def __getitem__(self, key):
        raise RuntimeError("never read")


def test_each_fact_is_one_line_in_order(lines):
    log = StructlogFactLog()
    log.append([a_fact("a", tool_id="shop.sync", data={"outcome": "handled"}), a_fact("b")])
    log.append([a_fact("c")])
    log.close()
    first, *rest = lines()
    del first["timestamp"]
    assert first == {
        "event": "fact",
        "fact_id": "a",
        "type": "lifecycle",
        "subtype": "handled",
        "at": AT.isoformat(),
        "tool_id": "shop.sync",
        "data": {"outcome": "handled"},
        "level": "info",
        "logger": "angzarr.facts",
    }
    assert [line["fact_id"] for line in rest] == ["b", "c"]


def test_names_in_data_cannot_take_the_place_of_a_facts_own(lines):
    StructlogFactLog().append([a_fact(data={"event": "x", "type": "y", "level": "z"})])
    (line,) = lines()
    assert (line["event"], line["type"], line["level"]) == ("fact", "lifecycle", "info")


def test_nothing_is_read_where_the_level_is_off(lines, angzarr_log):
    angzarr_log.setLevel(logging.WARNING)
    StructlogFactLog().append([a_fact(data=Unreadable(a=1))])
    assert lines() == []


def test_a_fact_that_cannot_be_read_fails_no_delivery(lines):
    StructlogFactLog().append([a_fact(data=Unreadable(a=1))])
    (line,) = lines()
    assert (line["event"], line["level"]) == ("fact_not_logged", "error")


def test_closing_twice_is_safe(lines):
    log = StructlogFactLog()
    log.close()
    log.close()
    log.append([a_fact()])
    assert len(lines()) == 1
