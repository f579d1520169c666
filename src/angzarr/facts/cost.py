"""Cost: what an operation spent, also one that failed (spec F2). Pure.

Amounts are exact: `Decimal`, never a float.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Final, TypeAlias

from angzarr.errors import InvalidCost
from angzarr.facts.currencies import checked_currency
from angzarr.facts.fact import Cost
from angzarr.runtime.text import printable

#: Digits after the point, and before it, at most: a price of a token has six, a sum fifteen.
MOST_DECIMALS: Final = 18
MOST_WHOLE: Final = 18
#: Units of one cost at most, and characters of a name or a text among them.
MOST_UNITS: Final = 20
LONGEST_UNIT: Final = 200

#: An amount as people write it. Python's Decimal reads more: spaces, "1_000", digits of any script.
#: That it is to be finite is told apart.
_NUMBER: Final = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|nan|inf(?:inity)?)",
    re.ASCII | re.IGNORECASE,
)

#: Adds without rounding: no amount that a database keeps has that many digits.
_EXACT: Final = Context(prec=100_000)

#: What was used: counts and names, such as ``{"model": "small-2", "input_tokens": 1200}``.
Units: TypeAlias = Mapping[str, str | int | float | Decimal]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """One cost as a handler says it; `config` is the configuration that priced it."""

    cost: Cost
    units: Mapping[str, Any]
    operation: str | None = None
    config_id: str | None = None
    config_version: str | None = None
    #: What it was spent on, where that is not what the whole run works on.
    asset_id: str | None = None


def amount_of(given: object) -> Decimal:
    """The exact amount that *given* is: a Decimal, an int, or a text such as "0.05".

    Raises InvalidCost for a float, for what is negative or no number, and for too many digits.
    """
    if isinstance(given, bool) or not isinstance(given, Decimal | int | str):
        shown = printable(repr(given))[:50]
        msg = (
            f'an amount is a Decimal, an int or a text such as "0.05", not {shown}'
            f" ({type(given).__name__})"
        )
        raise InvalidCost(msg)
    if isinstance(given, str):
        given = _read(given)
    amount = Decimal(given)
    if not amount.is_finite() or amount < 0:
        msg = f"an amount must be a number from 0 on, not {printable(amount)[:50]}"
        raise InvalidCost(msg)
    return _bounded(amount.copy_abs())


def _read(text: str) -> Decimal:
    with suppress(InvalidOperation):  # its exponent
        if _NUMBER.fullmatch(text):
            return Decimal(text)
    msg = f'an amount is a number such as "0.05", not {printable(text)[:50]!r}'
    raise InvalidCost(msg)


def _bounded(amount: Decimal) -> Decimal:
    exponent = amount.as_tuple().exponent
    assert isinstance(exponent, int)  # noqa: S101 - it is finite
    if amount.adjusted() >= MOST_WHOLE or exponent < -MOST_DECIMALS:
        msg = (
            f"an amount has at most {MOST_WHOLE} digits before the point and {MOST_DECIMALS}"
            " after it"
        )
        raise InvalidCost(msg)
    return amount if exponent <= 0 else _EXACT.quantize(amount, Decimal(1))


def units_of(given: Units | None) -> dict[str, Any]:
    """*given* as JSON; Decimals are text. Raises InvalidCost for anything else than flat values."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) or len(given) > MOST_UNITS:
        msg = f"the units of a cost are a mapping of at most {MOST_UNITS} names to values"
        raise InvalidCost(msg)
    return {_short(name): _unit(name, value) for name, value in given.items()}


def _unit(name: object, value: object) -> Any:
    match value:
        case str():
            return _short(value)
        case bool():
            pass
        case int() if abs(value) < 2**63:
            return value
        case float() if math.isfinite(value):
            return value
        case Decimal() if value.is_finite():
            return f"{value:f}"[:LONGEST_UNIT]
    msg = f"the unit {printable(name)[:50]!r} of a cost must be a text or a finite number"
    raise InvalidCost(msg)


def _short(text: object) -> str:
    if not isinstance(text, str) or not text or len(text) > LONGEST_UNIT:
        msg = f"names and texts among the units of a cost have from 1 to {LONGEST_UNIT} characters"
        raise InvalidCost(msg)
    return text


def cost_of(
    amount: object, currency: object, *, from_entity: str | None = None, to: str | None = None
) -> Cost:
    """The cost of *amount* in *currency*; raises InvalidCost."""
    return Cost(
        amount=amount_of(amount),
        currency=checked_currency(currency),
        from_entity=from_entity,
        to_entity=to,
    )


def total(costs: Iterable[Cost]) -> dict[str, Decimal]:
    """The exact sum of *costs* by currency."""
    sums: dict[str, Decimal] = {}
    for cost in costs:
        sums[cost.currency] = exact_sum(sums.get(cost.currency, Decimal(0)), cost.amount)
    return sums


def exact_sum(one: Decimal, other: Decimal) -> Decimal:
    """The sum without rounding."""
    return _EXACT.add(one, other)


def month_of(moment: datetime) -> datetime:
    """The start of the month of *moment*, in its zone."""
    return day_of(moment).replace(day=1)


def day_of(moment: datetime) -> datetime:
    """The start of the day of *moment*, in its zone."""
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)
