from __future__ import annotations

import json
from decimal import Decimal

import pytest
from tests.contracts.fact_reader import a_cost, after, an_end, an_error
from tests.contracts.facts import AT, a_fact

from angzarr.adapters.memory.fact_reader import MemoryFactReader
from angzarr.adapters.memory.facts import MemoryFactLog
from angzarr.analysis.ledger.export import json_text
from angzarr.facts.fact import Cost
from angzarr.facts.fact_json import (
    counts_json,
    detail_of,
    fact_json,
    resolved_lines,
    summary_of,
)
from angzarr.facts.query import FactCount, FactField


def reader_of(*facts):
    log = MemoryFactLog()
    log.append(facts)
    return MemoryFactReader(log)


def test_a_fact_has_all_its_fields():
    cost = Cost(amount=Decimal("1E+3"), currency="EUR", from_entity="us", to_entity="them")
    told = fact_json(a_fact(type="cost", cost=cost, tenant_id="t", data={"n": 1}))
    assert told == {
        "id": "f-1", "type": "cost", "subtype": "handled", "timestamp": AT, "tenant_id": "t",
        "entity_id": None, "tool_id": None, "event_id": None, "trace_id": None, "asset_id": None,
        "config_id": None, "config_version": None, "resolves": None, "amount": "1000",
        "currency": "EUR", "from_entity": "us", "to_entity": "them",
        "data": {"n": 1, "failed": False, "error_fact_id": None},
    }  # fmt: skip
    assert json.loads(json_text(told))["amount"] == "1000"


def test_an_error_tells_by_which_fact_it_is_resolved_whatever_it_was_written_with():
    error = an_error("e", data={"resolved": True, "resolution_fact_id": "lie", "n": 1})
    assert fact_json(error)["data"] == {"resolved": False, "resolution_fact_id": None, "n": 1}
    told = fact_json(error, an_end("end", 1))
    assert told["data"] == {"resolved": True, "resolution_fact_id": "end", "n": 1}
    assert "resolved" not in fact_json(an_end("end", 1))["data"]


def test_a_failed_run_tells_what_it_cost_and_its_cost_tells_the_error():
    run = {"retry_attempt": 1, "replay": 0}
    error = an_error("error", data={"outcome": "retried", **run})
    costs = [
        a_cost(name, amount, currency, event_id="e", tool_id="shop.sync", data=run)
        for name, amount, currency in (
            ("a", "0.10", "EUR"),
            ("b", "0.20", "EUR"),
            ("c", "3", "USD"),
        )
    ]
    told = detail_of(reader_of(error, *costs[:2]), error).told["data"]
    assert (told["cost_incurred"], told["currency"]) == ("0.30", "EUR")
    both = detail_of(reader_of(error, *costs), error).told["data"]["costs_incurred"]
    assert [one["cost_incurred"] for one in both] == ["0.30", "3"]
    shown = detail_of(reader_of(error, *costs), costs[0]).told["data"]
    assert (shown["failed"], shown["error_fact_id"]) == (True, "error")
    assert "cost_incurred" not in detail_of(reader_of(error), error).told["data"]


def test_a_detail_has_both_ways_and_all_runs():
    end = an_end("end", 3)
    reader = reader_of(an_error("one", 1), an_error("two", 2), end, an_error("y", 1, tool_id="y"))
    told = detail_of(reader, end).told
    assert told["resolved_facts"] == ["one", "two"]
    assert [one["id"] for one in told["runs"]] == ["one", "two", "end"]
    assert told["runs"][0]["data"]["resolution_fact_id"] == "end"
    assert not told["earlier_runs"]
    told = detail_of(reader, an_error("one", 1)).told
    assert told["data"]["resolution_fact_id"] == "end"
    assert detail_of(reader, a_fact("no event")).told["runs"] == []


def test_many_facts_are_told_in_order_with_their_resolutions():
    facts = [an_error(f"f{number}", number, event_id=f"e{number}") for number in range(1_100)]
    reader = reader_of(*facts, an_end("end", 2000, event_id="e700"))
    told = list(resolved_lines(reader, iter(facts)))
    assert [one["id"] for one in told] == [one.id for one in facts]
    assert [one["id"] for one in told if one["data"]["resolved"]] == ["f700"]


def test_counts_name_their_fields():
    by = [FactField.DAY, FactField.TOOL]
    assert counts_json([FactCount(("2026-05-04", None), 3)], by) == [
        {"day": "2026-05-04", "tool": None, "facts": 3}
    ]


@pytest.mark.parametrize(
    ("fact", "line"),
    [
        (an_error("e", data={"error_code": "HTTP_503", "error_message": "away"}), "HTTP_503: away"),
        (an_error("e", data={"error_code": "HTTP_503"}), "HTTP_503"),
        (an_error("e", data={"error_message": {"odd": 1}}), "{'odd': 1}"),
        (an_error("e"), ""),
        (a_cost("c", "0.10", at=after(1)), "0.10 EUR"),
        (a_fact(data={"reason": "switched off"}), "switched off"),
        (a_fact(), ""),
    ],
)
def test_a_fact_is_summed_up_in_a_line(fact, line):
    assert summary_of(fact) == line


def test_what_a_caller_left_out_of_a_fact_is_not_told_of():
    assert summary_of(a_fact(subtype="act_begun")) == ""
    configured = a_fact(data={"configuration": "x", "by": "ann", "appended_by": "bob"})
    assert summary_of(configured) == "by bob", "it was bob who said so"
