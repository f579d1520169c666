"""Forms: what forms and addresses of pages hold, checked as the API checks it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from angzarr.analysis.ledger.operator_actions import LONGEST_NOTE
from angzarr.analysis.ledger.replay_options import Expectation
from angzarr.dashboard.api.requests import Filter
from angzarr.dashboard.problem import Problem
from angzarr.events.headers import time_of

_FIELDS: Final = frozenset(Filter.model_fields)
M = TypeVar("M", bound=BaseModel)


def filled(model: type[M], request: Request, **more: str) -> M:
    """*model* from the address of a page; a field that was left empty counts as none.

    Raises RequestValidationError.
    """
    given = {name: value for name, value in request.query_params.items() if value}
    known = {name: given[name] for name in model.model_fields if name in given}
    try:
        return model.model_validate(known | more)
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from error


def filter_query(request: Request) -> str:
    """The filter in the address of a page as a query; empty where it names nothing."""
    given = request.query_params.items()
    return urlencode([(name, value) for name, value in given if value and name in _FIELDS])


def note_in(form: dict[str, str], most: int = LONGEST_NOTE) -> str:
    """The note that a person wrote; refuses one that would be cut."""
    note = form.get("note", "").replace("\r\n", "\n").strip()
    if len(note) > most:
        msg = f"a note has at most {most} characters"
        raise Problem(422, "invalid", msg)
    return note


def order_in(form: dict[str, str]) -> dict[str, Any]:
    """The place and sequence of a person's replays, by the names of `ReplayOrder`'s fields."""
    places = {name: form.get(name, "") for name in ("to_queue", "to_handler")}
    try:
        return places | {"sequence": Expectation(form.get("sequence") or Expectation.AS_IS)}
    except ValueError:
        raise Problem(
            422, "invalid", "the form has no such sequence: load its page again"
        ) from None


def number_in(form: dict[str, str], name: str) -> int:
    """The number in a hidden field."""
    text = form.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) < 10):  # noqa: PLR2004 - as databases
        raise Problem(422, "invalid", f"the form has no {name}: load its page again")
    return int(text)


def moment_in(form: dict[str, str], name: str) -> datetime:
    """The moment in a hidden field."""
    moment = time_of(form.get(name, ""))
    if moment is None:
        raise Problem(422, "invalid", f"the form has no {name}: load its page again")
    return moment
