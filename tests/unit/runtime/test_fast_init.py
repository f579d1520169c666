from __future__ import annotations

import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace

import pytest

from angzarr.dead_letters.letter import DeadLetter
from angzarr.dead_letters.queue import Receipt
from angzarr.events.event import Event, Message
from angzarr.runtime.fast_init import fast_init


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    name: str
    count: int = 3
    tags: list[str] = field(default_factory=list)


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Quick:
    name: str
    count: int = 3
    tags: list[str] = field(default_factory=list)


@pytest.mark.parametrize("given", [{}, {"count": 4}, {"tags": ["a"]}, {"count": None, "tags": []}])
def test_it_builds_what_the_dataclass_would(given):
    quick, slow = Quick(name="n", **given), Slow(name="n", **given)
    assert [getattr(quick, f.name) for f in fields(Quick)] == [
        getattr(slow, f.name) for f in fields(Slow)
    ]
    assert quick == Quick(name="n", **given) == pickle.loads(pickle.dumps(quick))  # noqa: S301


def test_each_object_has_a_default_of_its_own():
    assert Quick(name="a").tags is not Quick(name="b").tags


@pytest.mark.parametrize("given", [{}, {"name": "n", "other": 1}])
def test_what_is_missing_or_unknown_is_refused(given):
    with pytest.raises(TypeError, match="__init__"):
        Quick(**given)


def test_it_stays_frozen():
    with pytest.raises(FrozenInstanceError):
        Quick(name="a").name = "b"


def test_the_signature_and_replace_stay():
    assert inspect.signature(Quick).parameters.keys() == inspect.signature(Slow).parameters.keys()
    assert replace(Quick(name="a"), count=1) == Quick(name="a", count=1)


@pytest.mark.parametrize("cls", [Event, Message, DeadLetter, Receipt])
def test_the_classes_that_are_built_most_have_it(cls):
    assert cls.__init__.__wrapped__ is not cls.__init__
