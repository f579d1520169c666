from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tools.corpus.score import ClassScore, score

PAIRS = [("a", "a"), ("a", "a"), ("a", "b"), ("b", "b"), ("c", "b")]


def test_precision_and_recall_are_counted_for_each_class():
    classes = score(PAIRS).classes
    assert classes["a"] == ClassScore(labelled=3, predicted=2, hits=2)
    assert (classes["a"].precision, classes["a"].recall) == (1.0, 2 / 3)
    assert (classes["b"].precision, classes["b"].recall) == (1 / 3, 1.0)


def test_a_class_that_is_never_predicted_has_no_recall_and_no_false_alarms():
    missed = score(PAIRS).classes["c"]
    assert (missed.precision, missed.recall) == (1.0, 0.0)


def test_a_class_that_never_occurs_misses_nothing():
    assert score([("a", "b")]).classes["b"].recall == 1.0
    assert score([("a", "b")]).classes["b"].precision == 0.0


def test_confusions_name_label_and_prediction_most_frequent_first():
    confusions = score([*PAIRS, ("a", "b")]).confusions
    assert confusions == (("a", "b", 2), ("c", "b", 1))


def test_the_worst_recall_is_that_of_a_class_that_occurs():
    assert score(PAIRS).worst_recall() == 0.0
    assert score([("a", "b"), ("a", "a")]).worst_recall() == 0.5
    assert score([]).worst_recall() == 1.0


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc"))))
def test_nothing_is_lost_or_counted_twice(pairs):
    result = score(pairs)
    hits = sum(one.hits for one in result.classes.values())
    assert hits + sum(count for *_, count in result.confusions) == len(pairs)
    assert sum(one.labelled for one in result.classes.values()) == len(pairs)
    assert sum(one.predicted for one in result.classes.values()) == len(pairs)
    assert all(0 <= one.precision <= 1 and 0 <= one.recall <= 1 for one in result.classes.values())
