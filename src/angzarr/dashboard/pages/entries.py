"""Pages of entries: a list by any filter, one with all that is known of it, its verbs."""

from __future__ import annotations

from typing import Any, Final

from fastapi import Request
from starlette.responses import Response

from angzarr.analysis.ledger.entry import FailureClass, Status
from angzarr.analysis.ledger.export import entry_detail_json
from angzarr.analysis.ledger.operator_actions import Verb, is_parked, refusal, told_of_lane
from angzarr.analysis.ledger.replay_options import AS_IT_IS, ReplayOrder, continued
from angzarr.analysis.ledger.transition import replayable
from angzarr.analysis.replay.editor import EditChanges
from angzarr.analysis.replay.job import plan_for
from angzarr.analysis.replay.skip import told_behind
from angzarr.dashboard import actions
from angzarr.dashboard.api.export import EXPORTED, ExportQuery, export
from angzarr.dashboard.api.requests import EntryQuery
from angzarr.dashboard.api.route import ServicesHere
from angzarr.dashboard.api.shapes import EntryId
from angzarr.dashboard.pages.edits import both
from angzarr.dashboard.pages.forms import filled, filter_query, note_in, number_in, order_in
from angzarr.dashboard.pages.route import caller_of, form_of, go, operator_of, pages, render
from angzarr.dashboard.paging import next_query, page_after
from angzarr.dashboard.problem import Problem
from angzarr.dashboard.services import detail_of, explained, protection_of
from angzarr.dead_letters.letter import NoTarget

router = pages()
_ON_A_PAGE: Final = 50


@router.get("/entries")
def list_entries(request: Request, services: ServicesHere) -> Response:
    """Show entries, the one that failed last first."""
    asked = filled(EntryQuery, request)
    page = page_after(
        asked.after,
        lambda after: services.ledger.get_failed_events(
            asked.wanted(), status=asked.status, limit=_ON_A_PAGE, after=after
        ),
    )
    named = filter_query(request)
    return render(
        request,
        "entries.html",
        entries=page.entries,
        behind=services.behind(page.entries),
        asked=asked,
        statuses=list(Status),
        classes=list(FailureClass),
        next_page=next_query(request, page.next),
        verbs=list(Verb),
        acts_query=named,
        export_query=f"{named}&" if named else "",
        exported=EXPORTED,
    )


@router.get("/entries/export")
def export_entries(request: Request, services: ServicesHere) -> Response:
    """Give the entries of a filter as a file."""
    asked = filled(ExportQuery, request)
    return export(services, request.app.state.streams, asked, caller_of(request))


@router.get("/entries/{entry_id}")
def show_entry(request: Request, services: ServicesHere, entry_id: EntryId) -> Response:
    """Show everything about one entry."""
    detail = detail_of(services, entry_id)
    behind = services.behind([detail.entry])
    told: dict[str, Any] = entry_detail_json(detail, behind)
    return render(
        request,
        "entry.html",
        detail=detail,
        entry=detail.entry,
        message=told["message"],
        protection=protection_of(services, detail),
        verbs=[verb for verb in Verb if not refusal(detail.entry, verb)],
        replayable=replayable(detail.entry),
        mismatch=detail.mismatch,
        behind=told_behind(detail.failure, behind.get(entry_id, 0)),
        parked=is_parked(detail.entry),
    )


@router.get("/entries/{entry_id}/explanation")
def explain_entry(request: Request, services: ServicesHere, entry_id: EntryId) -> Response:
    """Show how an entry would be classified now, and why."""
    detail = detail_of(services, entry_id)
    found = explained(services, detail)
    return render(request, "explanation.html", entry=detail.entry, found=found)


@router.get("/entries/{entry_id}/acts/{verb}")
def ask_act(request: Request, services: ServicesHere, entry_id: EntryId, verb: Verb) -> Response:
    """Ask whether a verb is meant for an entry."""
    operator_of(request)
    entry = detail_of(services, entry_id).entry
    if why := refusal(entry, verb):
        raise Problem(409, "does-not-apply", why)
    return render(
        request,
        "confirm_act.html",
        what=f"the failure of {entry.event_type or 'an unreadable event'} in {entry.handler_name}",
        verb=verb,
        lane=told_of_lane(entry, verb),
        back=f"/entries/{entry_id}",
        revision=entry.revision,
    )


@router.post("/entries/{entry_id}/acts/{verb}")
def act_on_entry(
    request: Request, services: ServicesHere, entry_id: EntryId, verb: Verb
) -> Response:
    """Do a verb to an entry as its page showed it."""
    form = form_of(request)
    actions.act_on_one(
        services,
        entry_id,
        verb,
        note_in(form),
        by=caller_of(request),
        revision=number_in(form, "revision"),
    )
    return go(f"/entries/{entry_id}?done={verb}")


@router.get("/entries/{entry_id}/replay")
def ask_replay(request: Request, services: ServicesHere, entry_id: EntryId) -> Response:
    """Ask whether an entry is to be replayed."""
    operator_of(request)
    detail = detail_of(services, entry_id)
    if not replayable(detail.entry):
        raise Problem(409, "does-not-apply", f"the entry is {detail.entry.status}")
    last = continued(AS_IT_IS, detail.unanswered)
    again = services.editor.told(last) if last.letter else None
    problem = services.replayer.problem(detail.entry, detail.failure, last)
    return render(
        request,
        "confirm_replay.html",
        entry=detail.entry,
        again=again,
        whole=both(again.whole) if isinstance(again, EditChanges) else None,
        proposes=services.approves_edits,
        problem=problem,
        elsewhere=isinstance(problem, NoTarget),
        targets=services.replayer.targets,
        plan=order_in({}),
        mismatch=detail.mismatch,
        over=detail.entry.replays >= services.most_replays,
    )


@router.post("/entries/{entry_id}/replay")
def replay_entry(request: Request, services: ServicesHere, entry_id: EntryId) -> Response:
    """Begin the replay of one entry; the same form twice is one job."""
    form = form_of(request)
    order, original = ReplayOrder(**order_in(form)), form.get("original") == "yes"
    job = actions.replay_one(
        services,
        entry_id,
        plan_for(order, original=original),
        by=caller_of(request),
        note=note_in(form),
        key=form.get("form_key", ""),
        revision=number_in(form, "revision"),
    )
    return go(f"/jobs/{job.id}")
