"""Pages of entries: a list by any filter, one with all that is known of it, verbs for one or many.

A verb for many is done to the entries of which its page asked, or to none.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from fastapi import Request
from starlette.responses import Response

from angzarr.analysis.ledger.entry import FailureClass, Status
from angzarr.analysis.ledger.export import entry_detail_json
from angzarr.analysis.ledger.group import group_address
from angzarr.analysis.ledger.ledger import EntryFilter
from angzarr.analysis.ledger.operator_actions import Verb, is_parked, refusal, told_of_lane
from angzarr.analysis.ledger.replay_options import AS_IT_IS, ReplayOrder, continued
from angzarr.analysis.ledger.transition import replayable
from angzarr.analysis.replay.editor import EditChanges
from angzarr.analysis.replay.job import plan_for
from angzarr.analysis.replay.skip import told_behind
from angzarr.dashboard import actions
from angzarr.dashboard.api.entries import EXPORTED, ExportQuery, export_stream
from angzarr.dashboard.api.requests import MOST_AT_ONCE, EntryQuery, Filter
from angzarr.dashboard.api.route import ServicesHere
from angzarr.dashboard.api.shapes import EntryId, Fingerprint
from angzarr.dashboard.configurations import chosen_in, shown_configuration
from angzarr.dashboard.pages.edits import both
from angzarr.dashboard.pages.forms import (
    filled,
    filter_query,
    moment_in,
    note_in,
    number_in,
    order_in,
)
from angzarr.dashboard.pages.route import caller_of, form_of, go, operator_of, pages, render
from angzarr.dashboard.paging import cursor_after, next_query
from angzarr.dashboard.preconditions import About, Question, moment_of, question_of
from angzarr.dashboard.problem import Problem
from angzarr.dashboard.services import Services, detail_of, explained, group_of, protection_of
from angzarr.dead_letters.letter import NoTarget

router = pages()
_ON_A_PAGE: Final = 50
#: Entries of a result or a question that are named.
_NAMED: Final = 200
#: The entries are not those of which was asked.
_OTHERS: Final = 412


class _Subject(NamedTuple):
    """What the entries are called, and the page from which was asked."""

    what: str
    back: str


@router.get("/groups/{fingerprint}/acts/{verb}")
def ask_of_group(
    request: Request, services: ServicesHere, fingerprint: Fingerprint, verb: Verb
) -> Response:
    """Ask whether a verb is meant for the entries of a group."""
    operator_of(request)
    return _ask(request, services, *_group(services, fingerprint, verb))


@router.post("/groups/{fingerprint}/acts/{verb}")
def act_on_group(
    request: Request, services: ServicesHere, fingerprint: Fingerprint, verb: Verb
) -> Response:
    """Do a verb to the entries of a group of which was asked."""
    return _act(request, services, *_group(services, fingerprint, verb))


@router.get("/entries/acts/{verb}")
def ask_of_filter(request: Request, services: ServicesHere, verb: Verb) -> Response:
    """Ask whether a verb is meant for the entries of a filter."""
    operator_of(request)
    return _ask(request, services, *_filter(request, verb))


@router.post("/entries/acts/{verb}")
def act_on_filter(request: Request, services: ServicesHere, verb: Verb) -> Response:
    """Do a verb to the entries of a filter of which was asked."""
    return _act(request, services, *_filter(request, verb))


def _group(services: Services, fingerprint: str, verb: Verb) -> tuple[About, _Subject]:
    group = group_of(services, fingerprint)
    wanted = EntryFilter(fingerprint=fingerprint)
    what = f"entries of {group.error_type or fingerprint} in {group.handler_name or 'no handler'}"
    place = _Subject(what, f"/groups/{group_address(fingerprint)}")
    return About(wanted, None, verb, MOST_AT_ONCE), place


def _filter(request: Request, verb: Verb) -> tuple[About, _Subject]:
    asked = filled(Filter, request)
    if asked.is_any:
        raise Problem(422, "invalid", "name something by the filter first: a handler, a group …")
    named = asked.model_dump(exclude_defaults=True, mode="json").items()
    what = "entries with " + ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in named)
    about = About(asked.wanted(), asked.status, verb, MOST_AT_ONCE)
    return about, _Subject(what, f"/entries?{filter_query(request)}")


def _ask(request: Request, services: Services, about: About, place: _Subject) -> Response:
    until = moment_of(services, about.wanted, about.status)
    return _question_form(request, question_of(services, about, until), about, place)


def _act(request: Request, services: Services, about: About, place: _Subject) -> Response:
    """Act on what the form's page showed; where that is others by now, ask of those."""
    form, now = form_of(request), moment_of(services, about.wanted, about.status)
    note = note_in(form)
    question = question_of(services, about, min(moment_in(form, "until"), now))
    if question.mark != form.get("seen"):
        fresh = question_of(services, about, now)
        return _question_form(request, fresh, about, place, status=_OTHERS, note=note)
    asked = actions.BulkRequest(about.verb, note, caller_of(request))
    results = actions.act_on(services, question.entries, asked)
    refused = [*(one for one in results if one.problem), *question.refused]
    begun = [one for one in results if one.begun]
    return render(
        request,
        "results.html",
        verb=about.verb,
        place=place,
        done_count=len(results) - sum(bool(one.problem) for one in results) - len(begun),
        begun=begun,
        refused=refused,
        named=_NAMED,
        is_full=question.is_full,
    )


def _question_form(
    request: Request,
    question: Question,
    about: About,
    place: _Subject,
    *,
    status: int = 200,
    note: str = "",
) -> Response:
    query = f"?{request.url.query}" if request.url.query else ""
    return render(
        request,
        "confirm_many.html",
        status=status,
        question=question,
        verb=about.verb,
        place=place,
        action=f"{request.url.path}{query}",
        named=_NAMED,
        note=note,
        is_changed=status == _OTHERS,
    )


@router.get("/entries")
def list_entries(request: Request, services: ServicesHere) -> Response:
    """Show entries, the one that failed last first."""
    asked = filled(EntryQuery, request)
    page = services.ledger.get_failed_events(
        asked.wanted(), status=asked.status, limit=_ON_A_PAGE, after=cursor_after(asked.after)
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
    return export_stream(services, request.app.state.streams, asked, caller_of(request))


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
        runs=services.facts.runs_of(detail.entry),
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
        **shown_configuration(services, [detail]),
        mismatch=detail.mismatch,
        over=detail.entry.replays >= services.most_replays,
    )


@router.post("/entries/{entry_id}/replay")
def replay_entry(request: Request, services: ServicesHere, entry_id: EntryId) -> Response:
    """Begin the replay of one entry; the same form twice is one job."""
    form = form_of(request)
    order = ReplayOrder(**order_in(form), config=chosen_in(form))
    original = form.get("original") == "yes"
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
