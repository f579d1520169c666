"""Cases of rejected commands as rows, and back. Texts of others are kept as JSON, in ASCII."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from angzarr.adapters.sql.delivery.facts import utc
from angzarr.aggregates.book import Address
from angzarr.sagas.flags import CompensationStep
from angzarr.sagas.log import Case, RejectionStatus

_ADDRESSES: Final = ("source", "target")
#: Times, numbers, and what is read and written by itself.
_PLAIN: Final = ("source_sequence", "first_event", "event_count", "asked_again")
_TIMES: Final = ("rejected_at", "changed_at")
_TEXTS: Final = tuple(
    one.name
    for one in fields(Case)
    if one.name not in {"id", "status", *_ADDRESSES, *_PLAIN, *_TIMES}
)


def row_of(case: Case) -> dict[str, Any]:
    """Return the row of *case*."""
    row: dict[str, Any] = {"id": id_text(case.id), "status": case.status.value}
    row |= {name: getattr(case, name) for name in _PLAIN}
    row |= {name: utc(getattr(case, name)) for name in _TIMES}
    row |= {name: text_of(getattr(case, name)) for name in _TEXTS}
    for of in _ADDRESSES:
        address: Address = getattr(case, of)
        row |= {f"{of}_{name}": text_of(text) for name, text in address._asdict().items()}
    return row


def case_of_row(row: Mapping[Any, Any]) -> Case:
    """Return the case in *row*, which may lack its rejection."""
    said: dict[str, Any] = {name: row[name] for name in _PLAIN}
    said |= {name: utc(row[name]) for name in _TIMES}
    said |= {name: json.loads(row[name]) for name in _TEXTS if name in row}
    for of in _ADDRESSES:
        said[of] = Address(*(json.loads(row[f"{of}_{name}"]) for name in Address._fields))
    said["steps"] = tuple(map(CompensationStep, said["steps"]))
    id_ = json.loads(f'"{row["id"]}"')
    return Case(**said, id=id_, status=RejectionStatus(row["status"]))


def text_of(value: object) -> str:
    """Write *value* as ASCII, in which a database finds nothing that it refuses."""
    return json.dumps(value, separators=(",", ":"))


def id_text(id: str) -> str:
    """Write *id*, or how one begins, so that what begins alike still does."""
    return json.dumps(id)[1:-1]
