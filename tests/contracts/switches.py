"""What all switches must do. Each adapter's tests subclass this on the real server."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from angzarr.errors import ConfigurationError
from angzarr.resilience.switches import Selector, Switch, SwitchAction, SwitchChange
from polling import wait_until

SYNC = Selector("shop.sync", "order", "acme", "sales")
HANDLER, TENANT = Selector(handler="shop.sync"), Selector(tenant="acme")
PAUSE, DROP = SwitchAction.PAUSE, SwitchAction.DROP
#: A wait in tests that let it pass on a real server.
SHORT = timedelta(milliseconds=300)
HOUR = timedelta(hours=1)
#: Switches that those under test may have.
MOST = 20


class Watch:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.changes: list[SwitchChange] = []
        self.heard_of: list[tuple[set[str], set[str]]] = []

    def changed(self, change, /):
        self.changes.append(change)

    def heard(self, before, after, /):
        self.heard_of.append((set(before), set(after)))


class SwitchesContract:
    """Subclasses give `make`, which makes the switches of one process more, and `let_pass`.

    There may be `MOST` switches.
    """

    @pytest.fixture
    def make(self) -> Callable[..., object]:
        raise NotImplementedError

    @pytest.fixture
    def let_pass(self) -> Callable[[timedelta], None]:
        raise NotImplementedError

    @pytest.fixture
    def watch(self) -> Watch:
        return Watch()

    @pytest.fixture
    def mine(self, make, watch):
        """Of a person's process."""
        return make(watch)

    @pytest.fixture
    def theirs(self, make):
        """Of a worker's process, which has looked."""
        made = make()
        assert not made.any()
        return made

    def test_there_are_none_at_first(self, mine):
        assert not mine.any()
        assert mine.of(SYNC) is None
        assert list(mine.switches()) == []
        assert list(mine.history(10)) == []

    def test_what_is_put_is_told_as_it_was_put(self, mine):
        put = mine.put(HANDLER, PAUSE, by="ada", reason="büro 👩\u200d🔧 closed", until=HOUR)
        (found,) = mine.switches()
        assert found == put
        assert (found.selector, found.action, found.by) == (HANDLER, PAUSE, "ada")
        assert found.reason == "büro 👩\u200d🔧 closed"
        assert found.until - found.at == HOUR
        assert abs(found.at - mine.now()) < timedelta(seconds=10)

    def test_another_process_honours_a_pause_and_its_end(self, mine, theirs):
        put = mine.put(HANDLER, PAUSE, by="ada")
        wait_until(lambda: theirs.of(SYNC) == put)
        assert theirs.any()
        assert theirs.of(SYNC._replace(handler="shop.bill")) is None
        assert list(mine.resume([put.id], by="bob")) == [put]
        wait_until(lambda: theirs.of(SYNC) is None)

    def test_a_process_that_begins_later_knows_them_at_its_first_delivery(self, mine, make):
        mine.put(TENANT, DROP, by="ada", reason="left us")
        late = make()
        assert late.any()
        assert late.of(SYNC).action is DROP

    def test_a_pause_wins_over_a_drop(self, mine, theirs):
        mine.put(TENANT, DROP, by="ada", reason="left us")
        wait_until(lambda: theirs.of(SYNC))
        mine.put(Selector(handler="shop.*"), PAUSE, by="ada")
        wait_until(lambda: theirs.of(SYNC).action is PAUSE)

    def test_one_selector_has_one_switch(self, mine, theirs):
        mine.put(TENANT, PAUSE, by="ada")
        mine.put(TENANT, DROP, by="bob", reason="left us")
        (found,) = mine.switches()
        assert (found.action, found.by) == (DROP, "bob")
        wait_until(lambda: theirs.of(SYNC) == found)

    def test_one_ends_by_itself(self, mine, theirs, let_pass):
        mine.put(HANDLER, PAUSE, by="ada", until=SHORT)
        mine.put(TENANT, DROP, by="ada", reason="left us", until=mine.now() + HOUR)
        let_pass(SHORT)
        wait_until(lambda: (found := theirs.of(SYNC)) and found.action is DROP)
        assert [switch.action for switch in mine.switches()] == [DROP]

    def test_what_was_never_there_cannot_be_resumed(self, mine, watch):
        put = mine.put(HANDLER, PAUSE, by="ada")
        assert list(mine.resume(["nothing", put.id, put.id], by="ada")) == [put]
        assert list(mine.resume([put.id], by="ada")) == []
        assert [change.word for change in mine.history(10)] == ["pause", "resume"]
        assert [change.word for change in watch.changes] == ["pause", "resume"]

    def test_every_change_is_in_the_history_with_what_was_before(self, mine, watch):
        first = mine.put(HANDLER, PAUSE, by="ada", reason="a")
        second = mine.put(HANDLER, DROP, by="bob", reason="b", until=HOUR)
        mine.put(TENANT, PAUSE, by="bob")
        mine.resume([second.id], by="eve", reason="c")
        told = [(c.word, c.by, c.reason, c.before, c.after) for c in mine.history(10)]
        assert told[:2] == [("pause", "ada", "a", None, first), ("drop", "bob", "b", first, second)]
        assert told[3] == ("resume", "eve", "c", second, None)
        assert [change.word for change in mine.history(2)] == ["pause", "resume"]
        assert list(mine.history(10)) == watch.changes
        assert len({change.id for change in watch.changes}) == 4
        assert all(isinstance(change.at, datetime) for change in watch.changes)

    def test_who_honours_switches_is_told_once_a_change(self, mine, make):
        watch = Watch()
        worker = make(watch)
        worker.any()
        put = mine.put(HANDLER, PAUSE, by="ada")
        wait_until(lambda: worker.of(SYNC))
        mine.resume([put.id], by="ada")
        wait_until(lambda: not worker.of(SYNC))
        begins, ends = (set(), {put.id}), ({put.id}, set())
        assert [told for told in watch.heard_of if told[0] != told[1]] == [begins, ends]

    def test_there_are_no_more_than_each_process_can_keep(self, mine, theirs):
        for n in range(MOST):
            mine.put(Selector(tenant=f"t{n}"), PAUSE, by="ada")
        with pytest.raises(ConfigurationError, match="20 switches already"):
            mine.put(TENANT, PAUSE, by="ada")
        mine.put(Selector(tenant="t7"), DROP, by="ada", reason="in its place")
        wait_until(lambda: theirs.of(SYNC._replace(tenant="t7")))
        mine.resume([Selector(tenant="t8").id], by="ada")
        mine.put(TENANT, PAUSE, by="ada")

    def test_what_has_ended_by_itself_makes_room(self, mine, let_pass):
        mine.put(TENANT, PAUSE, by="ada", until=SHORT)
        for n in range(MOST - 1):
            mine.put(Selector(tenant=f"t{n}"), PAUSE, by="ada")
        let_pass(SHORT)
        mine.put(HANDLER, PAUSE, by="ada")
        assert len(mine.switches()) == MOST

    def test_nothing_unreadable_lies_there(self, mine):
        mine.put(HANDLER, PAUSE, by="ada")
        assert list(mine.unreadable()) == []

    def test_who_cannot_be_told_of_ends_nothing(self, mine):
        put = mine.put(HANDLER, PAUSE, by="ada")
        with pytest.raises(ConfigurationError, match="cannot be resumed: names and reason"):
            mine.resume([put.id], by="ada", reason="a\nb")
        assert list(mine.switches()) == [put]

    def test_what_is_no_switch_is_refused(self, mine):
        with pytest.raises(ConfigurationError, match="a drop needs a reason"):
            mine.put(HANDLER, DROP, by="ada")
        assert list(mine.switches()) == []

    @pytest.mark.parametrize("odd", ["a b", "ü\u00a0", "x:y%", '"\\', "*"])
    def test_any_name_can_be_switched(self, mine, odd):
        put = mine.put(Selector(tenant=odd, domain=odd), DROP, by=odd, reason=odd)
        assert mine.switches() == [put]
        assert isinstance(put, Switch)
        assert put.selector == (None, None, odd, odd)
