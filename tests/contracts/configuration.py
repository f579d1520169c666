"""What every store of configurations, and every store of pins, must do.

Each adapter's tests subclass these on the real server.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from angzarr.configuration.pins import PinStore
from angzarr.configuration.version import (
    ConfigurationAct,
    ConfigurationBody,
    ConfigurationDraft,
    ConfigurationStore,
)
from angzarr.errors import ConfigurationVersionExists, ConfigurationVersionMissing

AT = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)
CONTENDERS = 12
#: How long pins are kept in tests that let it pass on a real server.
SHORT = timedelta(milliseconds=150)


def act(author: str = "ada", note: str = "", minutes: int = 0) -> ConfigurationAct:
    return ConfigurationAct(author=author, at=AT + timedelta(minutes=minutes), note=note)


def draft(id: str, value: str = "{}", **said: object) -> ConfigurationDraft:
    schema = said.pop("schema", None)
    given = {"act": act(), **said}
    return ConfigurationDraft(id=id, body=ConfigurationBody(value, schema), **given)


class ConfigurationStoreContract:
    """Subclasses give `store`, which may hold other configurations already."""

    @pytest.fixture
    def store(self) -> ConfigurationStore:
        raise NotImplementedError

    @pytest.fixture
    def id(self) -> str:
        return f"pricing-{uuid.uuid4().hex}"

    def test_what_was_put_is_read_back_whole(self, store, id):
        given = draft(
            id, '{"net":"1.10"}', schema='{"type":"object"}', act=act("bob", "spring prices ü€")
        )
        put = store.put(given)
        assert put.fresh
        assert put.version == store.get(id, "1") == store.current(id)
        assert (put.version.body, put.version.info.act) == (given.body, given.act)
        assert put.version.info.number == 1
        assert put.version.info.has_schema

    def test_what_is_not_there_is_none(self, store, id):
        assert store.get(id, "1") is None
        assert store.current(id) is None
        assert store.versions(id) == []
        assert store.choices(id) == []
        store.put(draft(id))
        assert store.get(id, "2") is None

    def test_versions_are_numbered_in_the_order_in_which_they_are_put(self, store, id):
        for number in range(1, 13):
            assert store.put(draft(id, str(number))).version.version == str(number)
        infos = store.versions(id)
        assert [one.number for one in infos] == list(range(1, 13))
        assert [one.version for one in infos] == [str(n) for n in range(1, 13)]
        assert not any(one.has_schema for one in infos)

    def test_a_person_may_name_a_version_and_numbers_go_round_it(self, store, id):
        store.put(draft(id, "1", version="2026-Q1"))
        store.put(draft(id, "2", version="3"))
        named = [store.put(draft(id, str(value))).version.version for value in (3, 4)]
        assert named == ["4", "5"]
        assert [one.number for one in store.versions(id)] == [1, 2, 3, 4]

    def test_a_version_never_changes(self, store, id):
        first = store.put(draft(id, "1", version="a")).version
        for other in (draft(id, "2", version="a"), draft(id, "1", version="a", schema="{}")):
            with pytest.raises(ConfigurationVersionExists, match=f"version a of {id} has another"):
                store.put(other)
        assert store.get(id, "a") == store.current(id) == first
        assert len(store.versions(id)) == len(store.choices(id)) == 1

    def test_the_same_body_under_the_same_name_changes_nothing(self, store, id):
        first = store.put(draft(id, "1", version="a")).version
        second = store.put(draft(id, "2", version="b")).version
        again = store.put(draft(id, "1", version="a", act=act("eve")))
        assert (again.version, again.fresh) == (first, False)
        assert store.current(id) == second

    def test_the_body_that_was_put_last_is_not_put_again(self, store, id):
        first = store.put(draft(id, "1")).version
        again = store.put(draft(id, "1", act=act("eve")))
        assert (again.version, again.fresh) == (first, False)
        store.put(draft(id, "2"))
        back = store.put(draft(id, "1"))
        assert (back.version.version, back.fresh) == ("3", True)

    def test_a_chosen_version_is_current_until_the_next_is_put(self, store, id):
        for value in "12":
            store.put(draft(id, value))
        assert store.choose(id, "1", act("bob", "2 was wrong", 1))
        assert store.current(id).version == "1"
        assert not store.choose(id, "1", act("eve"))
        store.put(draft(id, "3"))
        assert store.current(id).version == "3"
        told = [(one.version, one.put, one.act.author) for one in store.choices(id)]
        assert told == [
            ("1", True, "ada"), ("2", True, "ada"), ("1", False, "bob"), ("3", True, "ada"),
        ]  # fmt: skip
        assert store.choices(id)[2].act == act("bob", "2 was wrong", 1)

    def test_what_is_not_there_cannot_be_chosen(self, store, id):
        with pytest.raises(ConfigurationVersionMissing, match=f"'{id}' has no version '1'"):
            store.choose(id, "1", act())
        store.put(draft(id))
        with pytest.raises(ConfigurationVersionMissing):
            store.choose(id, "2", act())
        assert len(store.choices(id)) == 1

    def test_all_configurations_are_listed_and_do_not_touch_each_other(self, store, id):
        for name in (f"{id}.b", f"{id}-a", id):
            store.put(draft(name, f'"{name}"'))
        assert [one for one in store.ids() if one.startswith(id)] == [id, f"{id}-a", f"{id}.b"]
        assert store.current(f"{id}-a").value == f"{id}-a"
        assert [one.version for one in store.versions(id)] == ["1"]

    def test_those_who_put_at_once_get_a_version_each(self, store, id):
        store.put(draft(id, "null"))
        with ThreadPoolExecutor(CONTENDERS) as pool:
            puts = list(pool.map(lambda n: store.put(draft(id, str(n))), range(CONTENDERS)))
        assert all(put.fresh for put in puts)
        versions = {put.version.version for put in puts}
        assert versions == {str(number) for number in range(2, CONTENDERS + 2)}
        for put in puts:
            assert store.get(id, put.version.version) == put.version
        assert store.current(id).version == str(CONTENDERS + 1)

    def test_of_those_who_put_one_name_at_once_one_wins(self, store, id):
        def put(number):
            try:
                return store.put(draft(id, str(number), version="a")).version.body.value
            except ConfigurationVersionExists:
                return None

        with ThreadPoolExecutor(CONTENDERS) as pool:
            won = [value for value in pool.map(put, range(CONTENDERS)) if value is not None]
        assert won == [store.get(id, "a").body.value]

    def test_a_value_is_made_anew_for_each_reader(self, store, id):
        store.put(draft(id, '{"net":[1]}'))
        found = store.get(id, "1")
        found.value["net"].append(2)
        assert found.value == {"net": [1]}

    def test_a_large_value_is_kept_whole(self, store, id):
        large = '"' + "x" * 1_000_000 + '"'
        store.put(draft(id, large))
        assert store.current(id).body.value == large

    def test_it_can_be_used_after_it_was_closed(self, store, id):
        store.put(draft(id))
        store.close()
        store.close()
        assert store.current(id).version == "1"


class PinStoreContract:
    """Subclasses give `make_pins`, which takes how long pins are kept, and `let_pass`."""

    @pytest.fixture
    def make_pins(self) -> Callable[..., PinStore]:
        raise NotImplementedError

    @pytest.fixture
    def let_pass(self) -> Callable[[timedelta], None]:
        raise NotImplementedError

    @pytest.fixture
    def pins(self, make_pins):
        return make_pins()

    @pytest.fixture
    def key(self) -> str:
        return f"shop.bill:{uuid.uuid4().hex}"

    def test_the_first_reader_wins(self, pins, key):
        assert pins.keep(key, {"pricing": "1"}) == {"pricing": "1"}
        assert pins.keep(key, {"pricing": "2"}) == {"pricing": "1"}
        assert pins.read(key) == {"pricing": "1"}

    def test_each_configuration_has_a_pin_of_its_own(self, pins, key):
        pins.keep(key, {"pricing": "1"})
        both = {"pricing": "1", "tax": "7"}
        assert pins.keep(key, {"tax": "7", "pricing": "9"}) == both
        assert pins.keep(key, {}) == both

    def test_each_claim_has_pins_of_its_own(self, pins, key):
        pins.keep(key, {"pricing": "1"})
        assert pins.read(f"{key}x") == {}
        assert pins.keep(f"{key}x", {"pricing": "2"}) == {"pricing": "2"}
        assert pins.read(key) == {"pricing": "1"}

    def test_where_there_are_none_there_are_none(self, pins, key):
        assert pins.read(key) == {}
        assert pins.keep(key, {}) == {}
        assert pins.read(key) == {}

    def test_all_who_read_first_at_once_see_one_version(self, pins, key):
        with ThreadPoolExecutor(CONTENDERS) as pool:
            kept = list(
                pool.map(
                    lambda n: pins.keep(key, {"pricing": str(n)})["pricing"], range(CONTENDERS)
                )
            )
        assert set(kept) == {pins.read(key)["pricing"]}

    def test_they_end_by_themselves(self, make_pins, key, let_pass):
        pins = make_pins(life=SHORT)
        pins.keep(key, {"pricing": "1"})
        let_pass(SHORT)
        assert pins.read(key) == {}
        assert pins.keep(key, {"pricing": "2"}) == {"pricing": "2"}
