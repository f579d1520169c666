"""Pages of verbs for many entries, of a group or a filter: what was asked is done, or nothing."""

from __future__ import annotations

from typing import Final, NamedTuple

from fastapi import Request
from starlette.responses import Response

from angzarr.analysis.ledger.group import group_address
from angzarr.analysis.ledger.ledger import EntryFilter
from angzarr.analysis.ledger.operator_actions import Verb
from angzarr.dashboard import actions
from angzarr.dashboard.api.requests import MOST_AT_ONCE, Filter
from angzarr.dashboard.api.route import ServicesHere
from angzarr.dashboard.api.shapes import Fingerprint
from angzarr.dashboard.pages.forms import filled, filter_query, moment_in, note_in
from angzarr.dashboard.pages.route import caller_of, form_of, operator_of, pages, render
from angzarr.dashboard.preconditions import About, Question, moment_of, question_of
from angzarr.dashboard.problem import Problem
from angzarr.dashboard.services import Services, group_of

router = pages()
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
    return _form(request, question_of(services, about, until), about, place)


def _act(request: Request, services: Services, about: About, place: _Subject) -> Response:
    """Act on what the form's page showed; where that is others by now, ask of those."""
    form, now = form_of(request), moment_of(services, about.wanted, about.status)
    note = note_in(form)
    question = question_of(services, about, min(moment_in(form, "until"), now))
    if question.mark != form.get("seen"):
        fresh = question_of(services, about, now)
        return _form(request, fresh, about, place, status=_OTHERS, note=note)
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


def _form(
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
