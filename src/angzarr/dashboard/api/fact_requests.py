"""Requests about facts: what callers may ask for, and the fact that they may append (F1)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from angzarr.dashboard.api.shapes import Asked, Moment, Text
from angzarr.dashboard.paging import text_after
from angzarr.errors import InvalidCost
from angzarr.facts.cost import amount_of
from angzarr.facts.currencies import checked_currency
from angzarr.facts.fact import APPENDED_BY, Cost, Fact
from angzarr.facts.query import (
    COUNT_FIELDS,
    LONGEST_PAGE,
    FactField,
    FactOrder,
    FactQuery,
    of_last_day,
)
from angzarr.facts.resolution import COST

#: Bytes of the data of a fact that is appended, as JSON; containers in one another.
MOST_DATA: Final = 32 * 1024
MOST_LEVELS: Final = 20
_LARGEST: Final = 2**63 - 1

_PLAIN_AMOUNT: Final = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18})?")
_Word = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
_TraceId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$", examples=["0" * 32])]
_PLAIN: Final = (
    "tenant_id", "entity_id", "tool_id", "event_id", "trace_id", "asset_id", "config_id",
    "config_version", "resolves",
)  # fmt: skip


class FactFilter(Asked):
    """Which facts; a field left out: any. `since` ≤ timestamp < `until`."""

    tenant_id: Text | None = None
    entity_id: Text | None = None
    tool_id: Text | None = None
    event_id: Text | None = None
    trace_id: Text | None = None
    asset_id: Text | None = None
    type: Text | None = None
    subtype: Text | None = None
    since: Moment | None = None
    until: Moment | None = None

    def wanted(self) -> FactQuery:
        """The query."""
        return FactQuery(**{name: getattr(self, name) for name in FactFilter.model_fields})


class FactListQuery(FactFilter):
    """A page of facts."""

    by: Text | None = Field(default=None, description="Who acted, like ann@desk.")
    order: Annotated[str, Field(pattern="^(newest|oldest)$")] = FactOrder.NEWEST.value
    limit: int = Field(default=100, ge=1, le=LONGEST_PAGE)
    after: Annotated[
        str, Field(max_length=200, description="Cursor that the page before named.")
    ] = ""

    def wanted(self) -> FactQuery:
        """The query."""
        return replace(super().wanted(), by=self.by)

    @property
    def cursor(self) -> str:
        """Behind which fact the page begins; raises Problem."""
        return text_after(self.after) if self.after else ""


_FIELD: Final = "|".join(one.value for one in COUNT_FIELDS)


class FactStatsQuery(FactFilter):
    """What is counted, by which fields; of the last day unless it says more."""

    by: Annotated[
        str,
        Field(
            pattern=rf"^({_FIELD})(,({_FIELD})){{0,6}}$",
            description=f"Fields with commas between them: {', '.join(COUNT_FIELDS)}.",
        ),
    ] = "type,subtype"
    person: Text | None = Field(default=None, description="Who acted: `by` of a list of facts.")
    limit: int = Field(default=100, ge=1, le=LONGEST_PAGE)

    @property
    def fields(self) -> list[FactField]:
        """The fields, each once."""
        return [FactField(one) for one in dict.fromkeys(self.by.split(","))]

    def bounded(self, now: datetime) -> FactQuery:
        """The query, from a day ago on where it names neither a time nor few facts."""
        return of_last_day(replace(self.wanted(), by=self.person), now)


def _json_faults(value: object, levels: int = MOST_LEVELS) -> Iterator[str]:
    """Yield what no database could keep of *value*, or would keep as another one."""
    match value:
        case dict() | list() if not levels:
            yield f"has more than {MOST_LEVELS} levels"
        case dict():
            for key, one in value.items():
                yield from _json_faults(key)
                yield from _json_faults(one, levels - 1)
        case list():
            for one in value:
                yield from _json_faults(one, levels - 1)
        case str() if "\x00" in value or not _is_unicode(value):
            yield "has a text with NUL or half a character"
        case float() if not math.isfinite(value):
            yield "has a number that JSON does not know"
        case int() if abs(value) > _LARGEST:
            yield "has a number of more than 64 bits"


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _sound(data: dict[str, Any]) -> dict[str, Any]:
    """*data*, if it is kept as it is; else ValueError."""
    for fault in _json_faults(data):
        raise ValueError(fault)
    if len(json.dumps(data)) > MOST_DATA:
        msg = f"is larger than {MOST_DATA} bytes as JSON"
        raise ValueError(msg)
    if APPENDED_BY in data:
        msg = f"says {APPENDED_BY}, which is for the dashboard to say: leave it out"
        raise ValueError(msg)
    return data


def _known(currency: str) -> str:
    """*currency*, if it is one; else ValueError."""
    try:
        return checked_currency(currency)
    except InvalidCost as error:
        raise ValueError(str(error)) from error


def _plain_amount(amount: str) -> str:
    """*amount*, if it is one that is written plainly; else ValueError."""
    if _PLAIN_AMOUNT.fullmatch(amount):
        return amount
    try:
        amount_of(amount)
    except InvalidCost as error:
        raise ValueError(str(error)) from error
    msg = 'is written plainly, such as "0.05": digits, and at most one point between digits'
    raise ValueError(msg)


_Amount = Annotated[
    str,
    AfterValidator(_plain_amount),
    WithJsonSchema({"type": "string", "pattern": f"^{_PLAIN_AMOUNT.pattern}$"}),
]


class NewFact(Asked):
    """A fact to append. `id` is its key: the same id and body again changes nothing."""

    id: Annotated[str, Field(pattern=r"^[^\x00-\x1f]{1,200}$")]
    type: _Word
    subtype: _Word
    timestamp: Moment | None = Field(default=None, description="Left out: now.")
    tenant_id: Text | None = None
    entity_id: Text | None = None
    tool_id: Text | None = None
    event_id: Text | None = None
    trace_id: _TraceId | None = None
    asset_id: Text | None = None
    config_id: Text | None = None
    config_version: Text | None = None
    resolves: Text | None = Field(default=None, description="The error fact that it resolved.")
    amount: _Amount | None = Field(
        default=None, description="What it cost, of a fact of type cost.", examples=["0.10"]
    )
    currency: Annotated[str, AfterValidator(_known)] | None = Field(
        default=None, description="ISO 4217.", examples=["EUR"]
    )
    from_entity: Text | None = None
    to_entity: Text | None = None
    data: Annotated[dict[str, Any], AfterValidator(_sound)] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _cost_is_whole(self) -> Self:
        named = (self.amount, self.currency)
        if self.type == COST and None in named:
            msg = "a fact of type cost has an amount and a currency"
            raise ValueError(msg)
        if self.type != COST and any((*named, self.from_entity, self.to_entity)):
            msg = "an amount, a currency, from_entity and to_entity are for facts of type cost"
            raise ValueError(msg)
        if self.resolves == self.id:
            msg = "a fact does not resolve itself"
            raise ValueError(msg)
        return self

    def fact(self, now: datetime, by: str) -> Fact:
        """The fact, appended at *now* by a caller."""
        names = ("id", "type", "subtype", *_PLAIN)
        return Fact(
            **{name: getattr(self, name) for name in names},
            at=self.timestamp or now,
            cost=self._cost(),
            data=self.data | {APPENDED_BY: by},
        )

    def is_same(self, kept: Fact) -> bool:
        """True if *kept* says the same; not by whom, and not when, where that is left out."""
        mine = self.fact(kept.at, "")
        told = {key: value for key, value in kept.data.items() if key != APPENDED_BY}
        # As JSON 1 is not true.
        same_data = json.dumps(self.data, sort_keys=True) == json.dumps(told, sort_keys=True)
        return same_data and replace(mine, data={}) == replace(kept, data={})

    def _cost(self) -> Cost | None:
        if self.amount is None or self.currency is None:
            return None
        return Cost(
            amount=Decimal(self.amount),
            currency=self.currency,
            from_entity=self.from_entity,
            to_entity=self.to_entity,
        )
