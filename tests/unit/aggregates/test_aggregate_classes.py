"""Classes that can work, and those that are refused (C1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pytest
from pydantic import BaseModel
from tests.accounts import (
    Account,
    Funds,
    book_of,
)

from angzarr.aggregates.aggregate import Aggregate
from angzarr.errors import (
    ConfigurationError,
)


def with_state(state: Any) -> type[Aggregate[Any]]:
    class Holding(Aggregate[state]): ...

    return Holding


def test_an_aggregate_without_a_state_is_refused():
    class Stateless(Aggregate):
        domain = "account"

    with pytest.raises(ConfigurationError, match=r"class Stateless\(Aggregate\[YourState\]\)"):
        Stateless.check()


@dataclass
class Needy:
    cents: int


class NeedyModel(BaseModel):
    cents: int


@pytest.mark.parametrize("state", [Needy, NeedyModel])
def test_a_state_without_defaults_is_refused(state):
    with pytest.raises(ConfigurationError, match=f"give the fields of {state.__name__} defaults"):
        with_state(state).check()


class Model(BaseModel):
    cents: int = 0


class Opaque:
    """Nothing that pydantic reads and writes."""


def test_a_state_that_cannot_be_written_is_refused():
    with pytest.raises(ConfigurationError, match="Opaque"):
        with_state(Opaque).check()


def test_a_snapshot_every_so_many_less_than_none_is_refused():
    class Backwards(Account):
        snapshot_every = -1

    with pytest.raises(ConfigurationError, match="snapshot_every"):
        Backwards.check()


T = TypeVar("T")


class Tagged(Generic[T]):
    """Has a type of its own that says nothing about a state."""


class Left(Tagged[int], Aggregate[Funds]): ...


class Right(Aggregate[Funds], Tagged[int]): ...


class Base(Aggregate[T]): ...


class Through(Base[Funds]): ...


class Again(Through): ...


@pytest.mark.parametrize("kind", [Left, Right, Through, Again])
def test_the_state_is_what_the_aggregate_names(kind):
    kind.check()
    assert kind.state_type is Funds


@pytest.mark.parametrize("state", [Funds, Model, dict, int, dict[str, int]])
def test_whatever_pydantic_makes_without_arguments_is_a_state(state):
    kind = with_state(state)
    kind.check()
    assert kind(book_of()).state == state()
