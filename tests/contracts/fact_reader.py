"""What every reader of facts answers, and every book that adds one."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.contracts.facts import AT, a_fact

from angzarr.facts.fact import Cost, Fact
from angzarr.facts.query import EVERY, CostSum, FactCount, FactField, FactOrder, FactQuery
from angzarr.facts.resolution import REOPENED

#: The facts of one example are none of another's.
_RUNS = itertools.count()
TYPE, SUBTYPE, TOOL = FactField.TYPE, FactField.SUBTYPE, FactField.TOOL
CAUSE, OPERATION, CONFIG = FactField.CAUSE, FactField.OPERATION, FactField.CONFIG
TENANT, DAY, CODE, EVENT = FactField.TENANT, FactField.DAY, FactField.ERROR_CODE, FactField.EVENT


def after(seconds: float = 0, **more: Any) -> Any:
    return AT + timedelta(seconds=seconds, **more)


def an_error(id: str, seconds: float = 0, **changes: Any) -> Fact:
    given: dict[str, Any] = {"event_id": "e", "tool_id": "shop.sync", "at": after(seconds)}
    return a_fact(id, type="error", **({"subtype": "transient"} | given | changes))


def an_end(id: str, seconds: float, **changes: Any) -> Fact:
    given: dict[str, Any] = {"event_id": "e", "tool_id": "shop.sync", "at": after(seconds)}
    return a_fact(id, **(given | changes))


def a_cost(id: str, amount: str, currency: str = "EUR", **changes: Any) -> Fact:
    cost = Cost(amount=Decimal(amount), currency=currency)
    return a_fact(id, type="cost", subtype="tool_usage", cost=cost, **changes)


def ids(facts: Any) -> list[str]:
    return [fact.id for fact in facts]


class FactReaderContract:
    """A subclass gives the fixtures `reader` and `book`, which have the same facts: none yet."""

    @pytest.fixture
    def add(self, book):
        def add(*facts: Fact) -> None:
            for fact in facts:
                assert book.add(fact) is None

        return add

    def test_a_fact_is_kept_whole_and_found_by_its_id(self, reader, add):
        whole = a_fact(
            "whole", tenant_id="t", entity_id="e", tool_id="x", event_id="e1", trace_id="a" * 32,
            asset_id="as", config_id="c", config_version="1", resolves="other",
            cost=Cost(amount=Decimal("0.000000000000000000001"), currency="EUR",
                      from_entity="us", to_entity="them"),
            data={"a": [1, {"b": None}], "c": 0.1},
        )  # fmt: skip
        add(whole, a_fact("bare"))
        assert reader.get("whole") == whole
        assert reader.get("bare") == a_fact("bare")
        assert reader.get("none") is None
        assert reader.get("\x00\ud800") is None

    def test_an_id_that_is_taken_keeps_its_fact_and_tells_it(self, reader, book):
        first, second = a_fact(data={"n": 1}), a_fact(data={"n": 2})
        assert book.add(first) is None
        assert book.add(second) == first
        assert book.add(first) == first
        assert reader.get(first.id) == first

    def test_of_many_who_add_one_id_at_once_one_is_the_first(self, reader, book):
        facts = [a_fact("rival", data={"n": number}) for number in range(8)]
        with ThreadPoolExecutor(len(facts)) as pool:
            kept = list(pool.map(book.add, facts))
        (first,) = (fact for fact, before in zip(facts, kept, strict=True) if before is None)
        assert reader.get("rival") == first
        assert all(before == first for before in kept if before is not None)

    @pytest.mark.parametrize(
        ("wanted", "found"),
        [
            ({"tenant_id": "t1"}, "ab"),
            ({"entity_id": "root"}, "b"),
            ({"tool_id": "x"}, "ac"),
            ({"event_id": "e1"}, "ad"),
            ({"trace_id": "f" * 32}, "c"),
            ({"type": "error"}, "bcd"),
            ({"type": "error", "subtype": "external"}, "bc"),
            ({"since": after(2)}, "cde"),
            ({"until": after(2)}, "ab"),
            ({"since": after(1), "until": after(2)}, "b"),
            ({"tenant_id": "t1", "tool_id": "x", "type": "error"}, ""),
            ({"only_runs": True}, "abcd"),
            ({"tenant_id": "t\x00"}, ""),
            ({"asset_id": "printer-7"}, "ab"),
            ({"asset_id": "printer-7", "by": "ann@desk"}, "a"),
            ({"by": "ann@desk"}, "a"),
            ({"by": "bob"}, "bde"),
            ({"by": "7"}, ""),
            ({"by": ""}, ""),
            ({}, "abcde"),
        ],
    )
    def test_facts_are_found_by_each_field(self, reader, add, wanted, found):
        add(
            a_fact("a", tenant_id="t1", tool_id="x", event_id="e1", asset_id="printer-7",
                   data={"by": "ann@desk"}),
            an_error("b", 1, subtype="external", tenant_id="t1", entity_id="root", tool_id="y",
                     event_id="e2", asset_id="printer-7",
                     data={"by": 7, "appended_by": "bob"}),
            an_error("c", 2, subtype="external", trace_id="f" * 32, tool_id="x", event_id=None),
            an_error("d", 3, tool_id=None, event_id="e1", data={"appended_by": "bob"}),
            a_fact("e", subtype="postponed", at=after(4),
                   data={"by": "ann@desk", "appended_by": "bob"}),
        )  # fmt: skip
        assert ids(reader.find(FactQuery(**wanted), order=FactOrder.OLDEST).facts) == list(found)

    @pytest.mark.parametrize("order", FactOrder)
    @pytest.mark.parametrize("wanted", [EVERY, FactQuery(tenant_id="t"), FactQuery(type="error")])
    def test_pages_follow_each_other_and_skip_none(self, reader, add, order, wanted):
        given = [
            an_error(f"f{number}", seconds, tenant_id="t")
            for number, seconds in enumerate([5, 3, 3, 3, 9, 1, 3, 9])
        ]
        add(*given)
        by_time = sorted(given, key=lambda one: one.at)  # which keeps the order of arrival
        expected = {
            FactOrder.OLDEST: by_time,
            FactOrder.NEWEST: by_time[::-1],
            FactOrder.ARRIVAL: given,
            FactOrder.LATEST_ARRIVAL: given[::-1],
        }[order]
        for limit in (1, 3, 8):
            seen, page_after = [], ""
            while True:
                page = reader.find(wanted, order=order, limit=limit, after=page_after)
                assert len(page.facts) <= limit
                assert len(page.cursors) == len(page.facts)
                seen += page.facts
                page_after = page.next
                if not page_after:
                    break
            assert ids(seen) == ids(expected)

    def test_a_page_goes_on_behind_any_fact_in_any_order(self, reader, add):
        add(*(a_fact(f"f{number}", at=after(-number)) for number in range(5)))
        page = reader.find(EVERY, order=FactOrder.LATEST_ARRIVAL, limit=1)
        assert ids(page.facts) == ["f4"]
        behind = str(page.cursors[0])
        add(a_fact("late", at=after(-9)))
        assert ids(reader.find(EVERY, order=FactOrder.ARRIVAL, after=behind).facts) == ["late"]
        oldest = reader.find(EVERY, order=FactOrder.OLDEST, after=behind)
        assert ids(oldest.facts) == ["f3", "f2", "f1", "f0"]

    @pytest.mark.parametrize(
        "cursor", ["x", "~1", "2026-01-01~", "2026-01-01~-1", "2026-01-01~" + "9" * 19, "1~2"]
    )
    def test_what_is_no_cursor_is_refused(self, reader, cursor):
        with pytest.raises(ValueError, match="is not a cursor of a page of facts"):
            reader.find(EVERY, after=cursor)

    def test_a_history_has_the_last_runs_of_an_event_by_a_handler_in_order(self, reader, add):
        add(
            an_end("end", 9),
            an_error("first", 1),
            an_error("second", 2),
            an_end("waits", 3, subtype="postponed"),
            an_error("others", 1, tool_id="shop.other"),
            an_error("none", 1, tool_id=None),
            an_error("elsewhere", 1, event_id="e2"),
        )
        page = reader.history("e", "shop.sync")
        assert ids(page.facts) == ["first", "second", "end"]
        assert not page.more
        page = reader.history("e", "shop.sync", limit=2)
        assert ids(page.facts) == ["second", "end"]
        assert page.more
        assert ids(reader.history("e", None).facts) == ["none"]
        assert reader.history("unknown", "shop.sync").facts == ()

    # -- what resolved what ----------------------------------------------------------------------

    def resolution(self, reader: Any, *facts: Fact) -> dict[str, str]:
        found = reader.resolutions(facts)
        for error, fact in found.items():  # the other way is the same
            assert error in ids(reader.resolved_by(fact.id))
        return {error: fact.id for error, fact in found.items()}

    def test_a_success_resolves_all_errors_of_its_event_and_handler_before_it(self, reader, add):
        errors = [an_error("one", 1), an_error("two", 2), an_error("later", 20)]
        others = [an_error("tool", 1, tool_id="y"), an_error("event", 1, event_id="e2")]
        add(*errors, *others, an_end("end", 10), an_end("again", 11))
        add(an_end("duplicate", 12, subtype="duplicate"), an_end("no tool", 13, tool_id=None))
        assert self.resolution(reader, *errors, *others) == {"one": "end", "two": "end"}
        assert ids(reader.resolved_by("end")) == ["one", "two"]
        assert reader.resolved_by("again") == []
        assert reader.resolved_by("one") == []
        assert reader.resolved_by("unknown") == []

    def test_a_skip_resolves_too(self, reader, add):
        add(an_error("one"), an_end("skip", 1, subtype="skipped"))
        assert self.resolution(reader, an_error("one")) == {"one": "skip"}

    def test_a_fact_that_names_an_error_resolves_it_and_those_before_it(self, reader, add):
        errors = [an_error("one", 1), an_error("two", 2), an_error("later", 9)]
        act = a_fact("act", subtype="archived", resolves="two", at=after(5))
        add(*errors, act)
        assert self.resolution(reader, *errors) == {"one": "act", "two": "act"}
        assert ids(reader.resolved_by("act")) == ["one", "two"]

    def test_what_is_named_outright_counts_before_a_later_success(self, reader, add):
        errors = [an_error("one", 1), an_error("two", 2)]
        add(*errors, an_end("end", 3), a_fact("act", subtype="replay", resolves="one", at=after(8)))
        add(a_fact("second act", subtype="replay", resolves="one", at=after(9)))
        assert self.resolution(reader, *errors) == {"one": "act", "two": "end"}
        assert ids(reader.resolved_by("end")) == ["two"]
        assert ids(reader.resolved_by("act")) == ["one"]

    def test_an_error_of_no_event_is_resolved_by_name_only(self, reader, add):
        error = an_error("one", event_id=None)
        add(error, an_end("end", 1, event_id=None))
        assert self.resolution(reader, error) == {}
        add(a_fact("act", resolves="one", at=after(2)))
        assert self.resolution(reader, error) == {"one": "act"}

    def test_an_error_and_a_fact_that_names_itself_resolve_nothing(self, reader, add):
        error = an_error("one", resolves="one")
        add(error, an_error("two", 1, resolves="one"))
        assert self.resolution(reader, error) == {}
        assert self.resolution(reader, a_fact("unknown")) == {}
        assert self.resolution(reader) == {}

    def test_what_a_person_brings_back_is_open_until_it_ends_again(self, reader, add):
        errors = [an_error("one", 1), an_error("letter", 2)]
        skip, restored = (
            an_end(kind, at, subtype=kind, resolves="letter")
            for kind, at in (("entry_skipped", 3), (REOPENED, 5))
        )
        add(*errors, skip)
        assert self.resolution(reader, *errors) == {"one": skip.id, "letter": skip.id}
        add(restored)
        assert self.resolution(reader, *errors) == {}
        assert reader.resolved_by(skip.id) == []
        add(an_end("replay", 7))
        assert self.resolution(reader, *errors) == {"one": "replay", "letter": "replay"}
        assert ids(reader.resolved_by("replay")) == ["one", "letter"]
        add(an_error("again", 8))
        assert self.resolution(reader, an_error("again", 8)) == {}

    def test_an_error_of_no_event_can_be_brought_back_too(self, reader, add):
        error = an_error("one", event_id=None)
        acts = [("skip", "entry_skipped"), ("back", REOPENED), ("second", "entry_skipped")]
        expected = [{"one": "skip"}, {}, {"one": "second"}]
        add(error)
        for at, ((id_, kind), resolved) in enumerate(zip(acts, expected, strict=True), 1):
            add(a_fact(id_, subtype=kind, resolves="one", at=after(at)))
            assert self.resolution(reader, error) == resolved

    def test_the_end_of_an_act_is_the_first_fact_that_names_its_beginning(self, reader, add):
        begun = [a_fact(f"b{number}", subtype="act_begun") for number in range(3)]
        add(
            *begun,
            a_fact("late", subtype="configuration_put", at=after(9), resolves="b0"),
            a_fact("end", subtype="act_failed", at=after(5), resolves="b0"),
            an_error("error", 6, resolves="b1"),
            a_fact("none", resolves="other"),
            a_fact("older", subtype="configuration_put", at=after(-1), resolves="b0"),
            a_fact("other kind", type="note", at=after(1), resolves="b0"),
            a_fact("forged", at=after(1), resolves="b0", data={"appended_by": "eve"}),
        )
        found = reader.ends([*begun, a_fact("other")])
        assert {key: fact.id for key, fact in found.items()} == {"b0": "end"}
        assert reader.ends([a_fact("other")]) == {}

    def test_a_person_ends_an_act_that_has_no_end_of_its_own(self, reader, add):
        begun = [a_fact(f"b{number}", subtype="act_begun") for number in range(2)]
        checked = {"subtype": "act_checked", "data": {"appended_by": "bob"}}
        add(
            *begun,
            *(a_fact(f"c{n}", at=after(1), resolves=f"b{n}", **checked) for n in range(2)),
            a_fact("end", subtype="act_failed", at=after(5), resolves="b0"),
        )
        found = reader.ends(begun)
        assert {key: fact.id for key, fact in found.items()} == {"b0": "end", "b1": "c1"}

    def test_a_named_fact_that_is_not_there_harms_nothing(self, reader, add):
        add(an_error("one"), a_fact("act", resolves="gone", at=after(1)))
        assert self.resolution(reader, an_error("one")) == {}
        assert reader.resolved_by("act") == []

    @given(st.data())
    @settings(
        max_examples=25, deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )  # fmt: skip
    def test_both_ways_agree_whatever_happened(self, reader, book, data):
        one = st.sampled_from(["error", "handled", "skipped", "postponed", "act", REOPENED])
        kinds = data.draw(st.lists(one, min_size=1, max_size=8))
        times = data.draw(st.lists(st.integers(0, 4), min_size=8, max_size=8))
        prefix = f"run {next(_RUNS)} "
        added = []
        for number, kind in enumerate(kinds):
            work = {"event_id": prefix, "tool_id": data.draw(st.sampled_from(["x", "y"]))}
            named = {"resolves": f"{prefix}{data.draw(st.integers(0, len(kinds)))}"}
            changes = {"act": named, REOPENED: work | named}.get(kind, work)
            type_ = "error" if kind == "error" else "lifecycle"
            id_ = f"{prefix}{number}"
            fact = a_fact(id_, type=type_, subtype=kind, at=after(times[number]), **changes)
            if book.add(fact) is None:
                added.append(fact)
        resolved = {error: fact.id for error, fact in reader.resolutions(added).items()}
        back = {error: one.id for one in added for error in ids(reader.resolved_by(one.id))}
        assert back == resolved
        errors = {fact.id: fact for fact in added if fact.type == "error"}
        assert set(resolved) <= set(errors)
        for error in errors.values():  # a later success of the same work leaves none open
            ends = [
                one for one in added
                if one.subtype in {"handled", "skipped"} and one.at >= error.at
                and (one.event_id, one.tool_id) == (error.event_id, error.tool_id)
            ]  # fmt: skip
            assert error.id in resolved or not ends or REOPENED in kinds

    # -- counts and sums -------------------------------------------------------------------------

    @pytest.fixture
    def counted(self, add):
        add(
            an_error("a", tenant_id="t1", data={"error_code": "HTTP_503"}),
            an_error("b", tenant_id="t1", data={"error_code": "HTTP_503"}),
            an_error("c", tenant_id="t2", subtype="external", data={"error_code": "CIRCUIT_OPEN"}),
            a_fact("d", tenant_id="t1", asset_id="printer-7", at=after(days=1)),
            a_fact("e", at=after(days=1, hours=20)),  # the day after, in UTC
            a_fact("f", at=after(days=1, hours=21), data={"by": "ann@desk"}),
            a_fact("g", at=after(days=1, hours=22), data={"by": "ann@desk"}),
        )

    @pytest.mark.parametrize(
        ("by", "expected"),
        [
            ([], [((), 7)]),
            ([TYPE], [(("error",), 3), (("lifecycle",), 4)]),
            ([TENANT], [(("t1",), 3), (("t2",), 1), ((None,), 3)]),
            ([FactField.ASSET], [(("printer-7",), 1), ((None,), 6)]),
            ([FactField.PERSON], [(("ann@desk",), 2), ((None,), 5)]),
            ([CODE], [(("HTTP_503",), 2), (("CIRCUIT_OPEN",), 1), ((None,), 4)]),
            ([DAY], [(("2026-05-04",), 3), (("2026-05-05",), 2), (("2026-05-06",), 2)]),
            ([SUBTYPE, TOOL, EVENT], [
                (("transient", "shop.sync", "e"), 2), (("external", "shop.sync", "e"), 1),
                (("handled", None, None), 4),
            ]),
        ],
    )  # fmt: skip
    def test_facts_are_counted_by_any_fields(self, reader, counted, by, expected):
        found = reader.stats(EVERY, by)
        assert set(found) == {FactCount(*one) for one in expected}
        assert [one.facts for one in found] == sorted((n for _, n in expected), reverse=True)

    def test_counts_are_of_what_is_wanted_and_bounded(self, reader, counted):
        assert reader.stats(FactQuery(tenant_id="t2"), [TYPE]) == [FactCount(("error",), 1)]
        assert len(reader.stats(EVERY, [DAY, TENANT, TYPE], limit=2)) == 2
        assert reader.stats(FactQuery(tenant_id="t3"), []) == []

    def test_costs_are_added_up_exactly_by_currency(self, reader, add):
        add(
            a_cost("a", "0.1", tenant_id="t1"),
            a_cost("b", "0.2", tenant_id="t1"),
            a_cost("c", "12345678901234567890.000000000000000000001", tenant_id="t1"),
            a_cost("d", "3", tenant_id="t2"),
            a_cost("e", "100", "JPY", tenant_id="t1"),
            a_fact("free", tenant_id="t1"),
        )
        large = Decimal("12345678901234567890.300000000000000000001")
        assert reader.costs(EVERY, [TENANT]) == [
            CostSum(("t1",), "EUR", large, 3),
            CostSum(("t2",), "EUR", Decimal(3), 1),
            CostSum(("t1",), "JPY", Decimal(100), 1),
        ]
        assert reader.costs(FactQuery(tenant_id="t2"), [DAY, SUBTYPE]) == [
            CostSum(("2026-05-04", "tool_usage"), "EUR", Decimal(3), 1)
        ]
        assert reader.costs(FactQuery(tenant_id="t2"), []) == [CostSum((), "EUR", Decimal(3), 1)]
        assert reader.costs(FactQuery(tenant_id="t3"), []) == []
        assert reader.costs(FactQuery(currency="JPY"), []) == [CostSum((), "JPY", Decimal(100), 1)]
        assert reader.costs(FactQuery(currency="USD"), [TENANT]) == []
        assert len(reader.costs(EVERY, [TENANT], limit=2)) == 2

    def test_what_failed_runs_cost_is_told_apart_with_its_cause(self, reader, add):
        def of_run(attempt, replay=0, **more):
            run = {"retry_attempt": attempt, "replay": replay, "operation": "charge"}
            return {"event_id": "e1", "tool_id": "h", "data": run | more}

        def failed(id, attempt, code, **more):
            told = of_run(attempt, error_code=code, outcome="retried") | more
            return a_fact(id, type="error", subtype="external", **told)

        add(
            failed("error-1", 1, "HTTP_503"),
            failed("error-2", 2, "HTTP_400"),
            failed("of-another", 1, "HTTP_500", tool_id="other"),
            a_fact("undo", type="error", subtype="step_not_undone", **of_run(3, error_code="X")),
            a_cost("a", "1.5", **of_run(1)),
            a_cost("b", "0.25", **of_run(1)),
            a_cost("c", "2", **of_run(2)),
            a_cost("d", "4", **of_run(3)),
            a_cost("f", "16", **(of_run(1, replay=1) | {"event_id": "e2"})),
            a_cost("e", "8", event_id="e3", config_id="pricing", config_version="3"),
        )
        one, two, four = Decimal("1.75"), Decimal(2), Decimal(4)
        assert reader.costs(EVERY, [CAUSE]) == [
            CostSum((None,), "EUR", Decimal(28), 3),
            CostSum(("HTTP_400",), "EUR", two, 1, two, 1),
            CostSum(("HTTP_503",), "EUR", one, 2, one, 2),
        ]
        assert reader.costs(FactQuery(event_ids=("e1", "e2")), []) == [
            CostSum((), "EUR", Decimal("23.75"), 5, Decimal("3.75"), 3)
        ]
        assert reader.costs(FactQuery(event_ids=("e1",)), [OPERATION, CONFIG]) == [
            CostSum(("charge", None), "EUR", one + two + four, 4, one + two, 3)
        ]
        costs = reader.find(FactQuery(type="cost")).facts
        told = {cost: error.id for cost, error in reader.failures(costs).items()}
        assert told == {"a": "error-1", "b": "error-1", "c": "error-2"}
        assert reader.costs(FactQuery(event_ids=("e3",)), [CONFIG]) == [
            CostSum(("pricing 3",), "EUR", Decimal(8), 1)
        ]
        with pytest.raises(ValueError, match="it belongs to costs"):
            reader.stats(EVERY, [CAUSE])
        assert len(reader.find(FactQuery(event_ids=("e1",), type="cost")).facts) == 4
