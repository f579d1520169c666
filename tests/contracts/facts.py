"""What every fact log must do that keeps facts."""

from __future__ import annotations

import statistics
import threading
import time
from abc import ABC, abstractmethod
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from angzarr.facts.fact import Fact, FactLog

AT = datetime(2026, 5, 4, 3, 2, 1, 123456, tzinfo=UTC)


def a_fact(id: str = "f-1", **changes: Any) -> Fact:
    given: dict[str, Any] = {"type": "lifecycle", "subtype": "handled", "at": AT}
    return Fact(id=id, **(given | changes))


def facts_of(prefix: str, count: int) -> list[Fact]:
    return [a_fact(f"{prefix}-{number:05}") for number in range(count)]


class Stubborn:
    def __str__(self) -> str:
        raise RuntimeError("no text")


class FactLogContract(ABC):
    """A subclass gives the fixture `log` and says how to read what was kept."""

    @abstractmethod
    def kept(self, log: FactLog) -> list[Fact]:
        """Return all facts that were kept, in order."""

    def test_appended_facts_are_kept_whole(self, log):
        whole = a_fact(
            tenant_id="t",
            entity_id="e",
            tool_id="shop.sync",
            asset_id="a",
            config_id="pricing",
            config_version="7",
            data={"error_code": "HTTP_503", "delay_ms": 12, "resolved": False, "more": [1, {}]},
        )
        bare = a_fact("f-2", type="error", subtype="external")
        log.append([whole, bare])
        log.close()
        assert self.kept(log) == [whole, bare]

    def test_the_same_id_twice_keeps_the_first(self, log):
        first, second = a_fact(data={"n": 1}), a_fact(data={"n": 2})
        log.append([first, first])
        log.append([second, a_fact("f-2")])
        log.close()
        log.append([second])
        log.close()
        assert self.kept(log) == [first, a_fact("f-2")]

    def test_each_callers_facts_stay_in_order(self, log):
        callers = [facts_of(f"caller-{number}", 200) for number in range(5)]

        def call(facts: list[Fact]) -> None:
            for start in range(0, len(facts), 3):
                log.append(facts[start : start + 3])

        threads = [threading.Thread(target=call, args=(facts,)) for facts in callers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        log.close()
        kept = [fact.id for fact in self.kept(log)]
        assert len(kept) == 1000
        for number, facts in enumerate(callers):
            mine = [one for one in kept if one.startswith(f"caller-{number}-")]
            assert mine == [fact.id for fact in facts]

    def test_appending_does_not_block(self, log):
        took = []
        for fact in facts_of("quick", 2000):
            began = time.perf_counter()
            log.append([fact])
            took.append(time.perf_counter() - began)
        log.close()
        # Some may meet a pause of a busy machine; a time-out, or a write, would be in all of them.
        assert statistics.median(took) < 0.05
        assert len(self.kept(log)) == 2000

    def test_odd_facts_are_kept_and_hold_up_no_other(self, log):
        odd = {
            "money": Decimal("9.90"),
            "at": AT,
            "nan": float("nan"),
            "nul": "a\x00b",
            "surrogate": "\ud800",
            "set": {1},
            "bytes": b"\xff",
            7: "number",
            "huge": 10**30,
        }
        itself: dict[str, Any] = {}
        itself["itself"] = itself
        log.append([a_fact("odd", data=odd), a_fact("loop", data=itself)])
        log.append([a_fact("text", tenant_id="a\x00\ud800", tool_id="x" * 10_000)])
        log.append([a_fact("i" * 5000), a_fact("stubborn", data={"x": Stubborn()}), a_fact("z")])
        log.close()
        kept = self.kept(log)
        assert [fact.id for fact in kept if len(fact.id) < 8 and fact.id != "stubborn"] == [
            "odd",
            "loop",
            "text",
            "z",
        ]
        assert len(kept) in (5, 6)  # a log may keep what it never writes out

    def test_times_come_back_in_utc(self, log):
        summer = timezone(timedelta(hours=2))
        log.append([a_fact("a", at=AT.astimezone(summer))])
        log.close()
        (kept,) = self.kept(log)
        assert kept.at == AT
        assert kept.at.tzinfo is not None

    def test_what_is_flushed_is_kept_without_an_end(self, log):
        log.append(facts_of("flushed", 3))
        assert log.flush(timedelta(seconds=60))
        assert self.kept(log) == facts_of("flushed", 3)
        assert log.flush(timedelta(0))
        log.close()

    def test_closing_twice_and_appending_after_it_are_safe(self, log):
        log.close()
        log.close()
        log.append([a_fact("late")])
        log.close()
        assert [fact.id for fact in self.kept(log)] == ["late"]
