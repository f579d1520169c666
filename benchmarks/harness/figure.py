"""Figure: one number that was promised, its aim, and how a measurement becomes its entry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

_REACHES: Mapping[str, Callable[[float, float], bool]] = {
    "≤": lambda value, aim: value <= aim,
    "≥": lambda value, aim: value >= aim,
    "=": lambda value, aim: value == aim,
}


class NotMeasured(Exception):
    """A figure could not be measured; the text says why in one sentence, with the cure if any."""


@dataclass(frozen=True, slots=True)
class Aim:
    """What a figure should be: ``≤ 1.15``, ``≥ 0.90`` or ``= 0``."""

    sign: str
    bound: float

    @classmethod
    def of(cls, text: str) -> Aim:
        """Read an aim; raises ValueError for anything else. Text after the number is a unit."""
        sign, number, *_unit = text.split()
        if sign not in _REACHES:
            msg = f"an aim starts with one of {' '.join(_REACHES)}, not {text!r}"
            raise ValueError(msg)
        return cls(sign, float(number))

    def reached(self, value: float) -> bool:
        """Tell whether *value* is what was aimed at."""
        return _REACHES[self.sign](value, self.bound)

    def worst(self, values: Sequence[float]) -> float:
        """Return the value that is farthest on the wrong side, or farthest from an exact aim."""
        if self.sign == "=":
            return max(values, key=lambda value: abs(value - self.bound))
        return max(values) if self.sign == "≤" else min(values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a measurement found: one value a run, and what one needs to know to judge them.

    *plot* is for `plot.draw`, if there is something to see.
    """

    values: Sequence[float]
    detail: Mapping[str, Any] = field(default_factory=dict)
    plot: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure by its key. `how` is told to people; `worst` lets the worst run count."""

    key: str
    title: str
    unit: str
    aim: str
    against: str
    how: str
    measure: Callable[[], Measured]
    worst: bool = False

    def entry(self, measured: Measured) -> dict[str, Any]:
        """Return what ``bench.json`` keeps of a measurement."""
        aim = Aim.of(self.aim)
        counts = aim.worst if self.worst or aim.sign == "=" else median
        values = measured.values
        return {
            "value": _rounded(counts(values)),
            "unit": self.unit,
            "aim": self.aim,
            "runs": len(values),
            "spread": [_rounded(min(values)), _rounded(max(values))],
            "against": self.against,
            "detail": dict(measured.detail),
            **({"plot": dict(measured.plot)} if measured.plot else {}),
        }


def _rounded(value: float) -> float:
    """Keep four significant digits; more would be noise."""
    return float(f"{value:.4g}")
