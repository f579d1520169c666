"""Score: how well predicted classes match labels, class by class. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

C = TypeVar("C", bound=Hashable)


@dataclass(frozen=True, slots=True)
class ClassScore:
    """One class. A ratio with nothing to count is 1: nothing was missed, nothing was false."""

    #: Lines with this label.
    labelled: int
    #: Lines that were called so.
    predicted: int
    #: Lines where both agree.
    hits: int

    @property
    def precision(self) -> float:
        """Of what was called so, the share that is."""
        return self.hits / self.predicted if self.predicted else 1.0

    @property
    def recall(self) -> float:
        """Of what is so, the share that was called so."""
        return self.hits / self.labelled if self.labelled else 1.0


@dataclass(frozen=True, slots=True)
class Score(Generic[C]):
    """All classes, and which were taken for which, most frequent first."""

    classes: Mapping[C, ClassScore]
    confusions: tuple[tuple[C, C, int], ...]

    def worst_recall(self) -> float:
        """Return the least recall of a class that occurs."""
        return min((one.recall for one in self.classes.values() if one.labelled), default=1.0)


def score(pairs: Iterable[tuple[C, C]]) -> Score[C]:
    """Return the score of ``(label, predicted)`` *pairs*."""
    counted = Counter(pairs)
    labelled: Counter[C] = Counter()
    predicted: Counter[C] = Counter()
    for (label, said), count in counted.items():
        labelled[label] += count
        predicted[said] += count
    classes = {
        one: ClassScore(labelled[one], predicted[one], counted[one, one])
        for one in sorted(labelled | predicted, key=str)
    }
    wrong = [(label, said, count) for (label, said), count in counted.items() if label != said]
    wrong.sort(key=lambda one: (-one[2], str(one[0]), str(one[1])))
    return Score(classes, tuple(wrong))
