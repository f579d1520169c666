from __future__ import annotations

import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace

import pytest

from angzarr.analysis.classification.evidence import Evidence
from angzarr.analysis.ledger.entry import Entry, HistoryLine
from angzarr.analysis.ledger.transition import EntryDecision
from angzarr.dead_letters.letter import DeadLetter
from angzarr.dead_letters.queue import Receipt
from angzarr.events.event import Event, Message
from angzarr.runtime.fast_init import fast_init, fast_replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    name: str
    count: int = 3
    tags: list[str] = field(default_factory=list)
    own: str = field(default="", init=False, compare=False)


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Quick:
    name: str
    count: int = 3
    tags: list[str] = field(default_factory=list)
    own: str = field(default="", init=False, compare=False)


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


@pytest.mark.parametrize("copy", [replace, fast_replace])
@pytest.mark.parametrize("changes", [{}, {"count": 4}, {"name": "b", "tags": ["t"]}])
def test_a_copy_has_the_changes_and_nothing_that_is_the_originals_own(copy, changes):
    one = Quick(name="a", count=2, tags=["x"])
    object.__setattr__(one, "own", "this very value")
    made = copy(one, **changes)
    assert made == Quick(**{"name": "a", "count": 2, "tags": ["x"], **changes})
    assert (made.own, one.own, one.count) == ("", "this very value", 2)


@pytest.mark.parametrize("name", ["other", "own"])
def test_a_copy_refuses_what_is_not_a_field_of_its_class(name):
    with pytest.raises(TypeError, match=name):
        fast_replace(Quick(name="a"), **{name: 1})


@pytest.mark.parametrize(
    "cls", [Event, Message, DeadLetter, Receipt, Entry, HistoryLine, Evidence, EntryDecision]
)
def test_the_classes_that_are_built_most_have_it(cls):
    assert cls.__init__.__wrapped__ is not cls.__init__


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    name: str
    key: str = field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "key", f"{self.name}!")


def test_what_is_derived_from_the_given_is_made_as_well():
    assert Derived(name="n").key == "n!"
    assert replace(Derived(name="n"), name="m").key == "m!"
    with pytest.raises(TypeError, match="__init__"):
        Derived(name="n", key="given")  # type: ignore[call-arg]


class Sub(Quick):
    """It has a `__dict__`, and so another layout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class More(Quick):
    more: int = 1


@pytest.mark.parametrize("cls", [Sub, More])
def test_a_class_that_derives_is_built_as_ever(cls):
    one = cls(name="a", count=2)
    assert (type(one), one.name, one.count, one.tags) == (cls, "a", 2, [])
    assert cls(name="a", tags=["t"]).tags == ["t"]
    with pytest.raises(FrozenInstanceError):
        one.name = "b"


def test_what_fails_to_be_built_leaves_nothing_that_is_not_frozen():
    one = Quick(name="a")
    with pytest.raises(TypeError):
        one.__init__(name="b", other=1)
    assert (type(one), one.name) == (Quick, "a")
    with pytest.raises(FrozenInstanceError):
        one.name = "c"
