"""What the decorators say of methods, and which classes are refused (C2, C4)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import wraps
from itertools import permutations

import pytest
from google.protobuf.duration_pb2 import Duration
from pydantic import BaseModel

from angzarr.aggregates.aggregate import Aggregate
from angzarr.aggregates.command import MergeStrategy
from angzarr.aggregates.decorators import (
    Rejected,
    applies,
    handles,
    merge_strategy,
    methods_of,
    reacts_to,
    rejected,
)
from angzarr.errors import ConfigurationError, DecodeError, InvalidDomainName


class Deposit(BaseModel):
    cents: int


@dataclass
class Withdraw:
    cents: int


@dataclass
class Funds:
    cents: int = 0


MARKS = {"handles": handles, "applies": applies, "reacts_to": reacts_to}


@pytest.mark.parametrize("kind", MARKS)
@pytest.mark.parametrize(
    ("subject", "type_name", "data", "decoded"),
    [
        (Deposit, "Deposit", {"cents": 5}, Deposit(cents=5)),
        (Withdraw, "Withdraw", {"cents": 5}, Withdraw(5)),
        (Duration, "google.protobuf.Duration", "5s", Duration(seconds=5)),
        ("account.closed", "account.closed", {"why": ["x"]}, {"why": ["x"]}),
    ],
)
def test_a_method_takes_its_subject_by_the_name_of_its_type(
    kind, subject, type_name, data, decoded
):
    class Owner:
        @MARKS[kind](subject)
        def take(self, given): ...

    (found,) = getattr(methods_of(Owner), kind).items()
    assert (found[0], found[1].name) == (type_name, "take")
    assert found[1].decode(data) == decoded


def test_a_subject_may_name_its_own_type():
    class Named(BaseModel):
        __event_type__ = "account.named.v2"

    class Owner:
        @handles(Named)
        def take(self, given): ...

    assert list(methods_of(Owner).handles) == ["account.named.v2"]


def test_data_that_does_not_fit_a_subject_is_refused_without_its_values():
    class Owner:
        @handles(Deposit)
        def take(self, given): ...

    with pytest.raises(DecodeError, match="cents") as caught:
        methods_of(Owner).handles["Deposit"].decode({"cents": "s3cret"})
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_the_order_of_decorators_says_nothing(order):
    said = (
        handles(Deposit),
        handles("account.credit"),
        rejected("table", "Join"),
        merge_strategy(MergeStrategy.STRICT),
    )

    def take(self, given): ...

    for index in order:
        take = said[index](take)
    found = methods_of(type("Owner", (), {"take": take}))
    assert {name: (one.name, one.merge) for name, one in found.handles.items()} == {
        "Deposit": ("take", MergeStrategy.STRICT),
        "account.credit": ("take", MergeStrategy.STRICT),
    }
    assert found.rejected == {Rejected("table", "Join"): "take"}


def test_a_method_without_a_merge_strategy_leaves_the_word_to_the_sender():
    class Owner:
        @handles(Deposit)
        def take(self, given): ...

    assert methods_of(Owner).handles["Deposit"].merge is None


@pytest.mark.parametrize("strategy", MergeStrategy)
def test_a_merge_strategy_may_be_named_by_its_number(strategy):
    class Owner:
        @handles(Deposit)
        @merge_strategy(int(strategy))
        def take(self, given): ...

    assert methods_of(Owner).handles["Deposit"].merge is strategy


def test_a_merge_strategy_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="9"):

        class Owner:
            @merge_strategy(9)
            def take(self, given): ...


@pytest.mark.parametrize("kind", MARKS)
def test_two_methods_for_one_type_are_refused(kind):
    class Owner:
        @MARKS[kind](Deposit)
        def one(self, given): ...

        @MARKS[kind]("Deposit")
        def other(self, given): ...

    with pytest.raises(ConfigurationError, match=r"Owner \w+( to)? Deposit twice: keep one"):
        methods_of(Owner)


def test_two_methods_for_one_rejection_are_refused():
    class Owner:
        @rejected("table", Deposit)
        def one(self, given): ...

        @rejected("table", "Deposit")
        def other(self, given): ...

    with pytest.raises(ConfigurationError, match="rejections of Deposit by table twice"):
        methods_of(Owner)


def test_rejections_are_told_apart_by_their_domain():
    class Owner:
        @rejected("table", Deposit)
        def one(self, given): ...

        @rejected("hand", Deposit)
        def other(self, given): ...

    assert methods_of(Owner).rejected == {
        Rejected("table", "Deposit"): "one",
        Rejected("hand", "Deposit"): "other",
    }


def test_one_type_may_be_a_command_and_an_event():
    class Owner:
        @handles(Deposit)
        def decide(self, given): ...

        @applies(Deposit)
        def change(self, given): ...

    found = methods_of(Owner)
    assert (found.handles["Deposit"].name, found.applies["Deposit"].name) == ("decide", "change")


def test_a_domain_that_cannot_be_is_refused():
    with pytest.raises(InvalidDomainName):
        rejected("No Domain", "Join")


def test_a_merge_strategy_without_a_command_is_refused():
    with pytest.raises(ConfigurationError, match="change has a merge strategy and handles no"):

        class Owner(Aggregate[Funds]):
            @merge_strategy(MergeStrategy.STRICT)
            @applies(Deposit)
            def change(self, given): ...


@pytest.mark.parametrize(
    "mark",
    [handles(Deposit), applies(Deposit), reacts_to(Deposit), rejected("table", "Join")],
)
def test_a_method_that_waits_is_refused(mark):
    async def decide(self, given): ...

    async def generate(self, given):
        yield given

    for method in (decide, generate):
        with pytest.raises(ConfigurationError, match="write it as def, not async def"):
            mark(method)


def test_a_plain_dict_is_refused_as_a_subject():
    with pytest.raises(ConfigurationError, match="name it"):
        handles(dict)(lambda self, given: None)


# -- inheritance -------------------------------------------------------------------------------


class Account(Aggregate[Funds]):
    @handles(Deposit)
    @merge_strategy(MergeStrategy.STRICT)
    def deposit(self, command):
        return Withdraw(1)

    @applies(Withdraw)
    def withdrawn(self, event):
        self.state.cents -= event.cents


def test_a_subclass_has_the_methods_of_its_base():
    class Savings(Account):
        @handles(Withdraw)
        def withdraw(self, command): ...

    assert set(Savings.methods.handles) == {"Deposit", "Withdraw"}
    assert set(Account.methods.handles) == {"Deposit"}
    assert Savings.state_type is Funds


def test_a_method_that_is_overridden_takes_what_the_base_said():
    class Savings(Account):
        def deposit(self, command):
            return Withdraw(2)

        def withdrawn(self, event):
            self.state.cents -= 2 * event.cents

    assert Savings.methods.handles["Deposit"].merge is MergeStrategy.STRICT
    assert Savings.methods.applies["Withdraw"].name == "withdrawn"


def test_a_method_that_is_overridden_and_declared_takes_what_it_says_itself():
    class Savings(Account):
        @handles(Deposit)
        @merge_strategy(MergeStrategy.MANUAL)
        def deposit(self, command): ...

    class Renamed(Account):
        @handles("account.deposit")
        def deposit(self, command): ...

    assert Savings.methods.handles["Deposit"].merge is MergeStrategy.MANUAL
    assert set(Renamed.methods.handles) == {"account.deposit"}
    assert Account.methods.handles["Deposit"].merge is MergeStrategy.STRICT


def test_a_method_that_is_taken_away_takes_nothing():
    class Closed(Account):
        deposit = None

    assert Closed.methods.handles == {}


def test_a_second_method_for_a_type_of_the_base_is_refused():
    with pytest.raises(ConfigurationError, match="Savings handles Deposit twice"):

        class Savings(Account):
            @handles(Deposit)
            def other(self, command): ...


def test_methods_come_from_a_mixin_too():
    class Closing:
        @handles("account.close")
        def close(self, command): ...

    class Savings(Closing, Account): ...

    assert set(Savings.methods.handles) == {"Deposit", "account.close"}


def test_a_wrapped_method_keeps_what_was_said_of_it():
    def logged(method):
        @wraps(method)
        def call(self, given):
            return method(self, given)

        return call

    class Owner:
        @logged
        @handles(Deposit)
        def inner(self, given): ...

        @handles(Withdraw)
        @logged
        def outer(self, given): ...

    assert set(methods_of(Owner).handles) == {"Deposit", "Withdraw"}


@pytest.mark.parametrize("kind", [staticmethod, classmethod, property])
def test_what_is_said_of_no_method_is_refused(kind):
    with pytest.raises(ConfigurationError, match="is not a method"):
        handles(Deposit)(kind(lambda *given: None))
