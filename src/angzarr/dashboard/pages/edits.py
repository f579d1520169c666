"""Pages of edits: other data for one event, its difference to confirm, then replay or proposal."""

from __future__ import annotations

import json
from typing import Any

from fastapi import Request
from starlette.responses import Response

from angzarr.analysis.replay.edit import Sides, Unfit, read_data
from angzarr.dashboard.api.edits import Edit, begin_edit, data_of, draft_of, editable, note_opened
from angzarr.dashboard.api.requests import DataQuery
from angzarr.dashboard.api.route import ServicesHere
from angzarr.dashboard.api.shapes import EntryId
from angzarr.dashboard.configurations import chosen_in, shown_configuration
from angzarr.dashboard.pages.forms import filled, note_in, number_in, order_in
from angzarr.dashboard.pages.route import (
    LONGEST_SHOWN,
    caller_of,
    form_of,
    go,
    operator_of,
    pages,
    render,
)
from angzarr.dashboard.problem import Problem
from angzarr.dashboard.services import Services, detail_of
from angzarr.dead_letters.letter import Refusal
from angzarr.runtime.text import escaped

router = pages()


@router.get("/entries/{entry_id}/edit")
def ask_data(request: Request, services: ServicesHere, entry_id: EntryId) -> Response:
    """Show the data that may be changed."""
    caller = operator_of(request)
    original = filled(DataQuery, request).original
    found = editable(services, entry_id, original=original)
    text = laid_out(data_of(services, found))
    note_opened(request, caller, encrypted=found.came_encrypted)
    form = {"data": text, "original": str(original).lower(), "revision": str(found.entry.revision)}
    return _form(request, services, entry_id, form)


@router.post("/entries/{entry_id}/edit")
def ask_edit(request: Request, services: ServicesHere, entry_id: EntryId) -> Response:
    """Show what an edit changes and ask whether it is meant, or what is wrong with it."""
    form = form_of(request)
    if "again" in form:
        return _form(request, services, entry_id, form)
    edit = _edit_in(form, entry_id)
    if isinstance(edit, Unfit):
        return _form(request, services, entry_id, form, edit)
    found, draft = draft_of(services, edit)
    entry = found.entry
    if isinstance(draft, Refusal):
        return _form(request, services, entry_id, form, draft)
    note_opened(request, caller_of(request), encrypted=found.came_encrypted)
    return render(
        request,
        "confirm_edit.html",
        entry=entry,
        changes=draft.changes,
        cut=draft.whole is not None,
        whole=both(draft.whole),
        form={"config": ""} | form | {"data": laid_out(edit.data), "note": edit.note},
        plan=edit.plan,
        proposes=services.approves_edits,
    )


@router.post("/entries/{entry_id}/edit/replay")
def replay_edit(request: Request, services: ServicesHere, entry_id: EntryId) -> Response:
    """Begin or propose the replay with other data; the same form twice is one job."""
    form = form_of(request)
    edit = _edit_in(form, entry_id)
    if isinstance(edit, Unfit):
        return _form(request, services, entry_id, form, edit)
    job = begin_edit(services, edit, by=caller_of(request), key=form.get("form_key"))
    return go(f"/jobs/{job.id}")


def laid_out(data: Any) -> str:
    """*data* as text that a page gives back as it was; Problem 409 for what is too long."""
    return _whole(escaped(json.dumps(data, indent=2, ensure_ascii=False)))


def both(whole: Sides | None) -> tuple[str, str] | None:
    """All data before and after for a page; None: there is no need, or no room."""
    if whole is None:
        return None
    before, after = (escaped(json.dumps(one, indent=2, ensure_ascii=False)) for one in whole)
    return (before, after) if max(len(before), len(after)) <= LONGEST_SHOWN else None


def _whole(text: str) -> str:
    """*text* if a page shows all of it: what was cut would be sent without its end."""
    if len(text) > LONGEST_SHOWN:
        msg = (
            f"its data has more than the {LONGEST_SHOWN} characters that a page takes: use the API"
            " or `angzarr dlq edit`"
        )
        raise Problem(409, "does-not-apply", msg)
    return text


def _edit_in(form: dict[str, str], entry_id: str) -> Edit | Unfit:
    """The edit that a person filled in, or what is wrong with its data."""
    data = read_data(form.get("data", ""))
    if isinstance(data, Unfit):
        return data
    return Edit(
        entry_id=entry_id,
        data=data,
        original=form.get("original") == "true",
        revision=number_in(form, "revision"),
        note=note_in(form),
        **order_in(form),
        config=chosen_in(form),
    )


def _form(
    request: Request, services: Services, entry_id: str, form: dict[str, str], problem: str = ""
) -> Response:
    """Ask for the data, with what was filled in and why it cannot be sent."""
    text = _whole(escaped(form.get("data", "")))
    detail = detail_of(services, entry_id)
    return render(
        request,
        "edit.html",
        status=422 if problem else 200,
        entry=detail.entry,
        was_edited=detail.before is not None,
        form={"original": "false", "revision": "", "note": ""} | form | {"data": text},
        rows=min(max(text.count("\n") + 2, 8), 40),
        problem=problem,
        targets=services.replayer.targets,
        plan=order_in(form),
        **shown_configuration(services, [detail], form),
        mismatch=detail.mismatch,
        proposes=services.approves_edits,
    )
