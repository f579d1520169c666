"""Groups of failures: their API and pages, which list, show, amend and replay them.

The API also does a verb to all entries of a group; its pages stand with those of entries.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Final

from fastapi import Query, Request
from pydantic import ValidationError
from starlette.responses import Response

from angzarr.analysis.ledger.entry import EntryDetail
from angzarr.analysis.ledger.group import (
    LONGEST_NOTE,
    LONGEST_OWNER,
    Amendment,
    Group,
    GroupStatus,
    group_address,
    group_detail_json,
    group_json,
    group_page_json,
)
from angzarr.analysis.ledger.ledger import EntryFilter
from angzarr.analysis.ledger.operator_actions import Verb
from angzarr.analysis.replay.job import DEFAULT_STAGES, Selection
from angzarr.dashboard import actions
from angzarr.dashboard.api.entries import AS_SEEN, IfMatch, results_json
from angzarr.dashboard.api.requests import Amended, GroupQuery, GroupVerb, JobPlanRequest
from angzarr.dashboard.api.route import (
    CallerHere,
    ChoiceHere,
    ServicesHere,
    acting,
    answer,
    problems,
    seeing,
)
from angzarr.dashboard.api.shapes import (
    Fingerprint,
    GroupDetailShape,
    GroupPageShape,
    GroupShape,
    ResultsShape,
)
from angzarr.dashboard.configurations import chosen_in, shown_configuration
from angzarr.dashboard.pages.forms import filled, moment_in, note_in, number_in, order_in
from angzarr.dashboard.pages.route import caller_of, form_of, go, operator_of, pages, render
from angzarr.dashboard.paging import cursor_after, next_link, next_query, sealed, seen, tag_of
from angzarr.dashboard.preconditions import About, act_on_found, counted, moment_of
from angzarr.dashboard.problem import Problem
from angzarr.dashboard.services import Services, group_of
from angzarr.dead_letters.letter import Reason
from angzarr.errors import ConfigurationError

see = seeing("groups")
act = acting("groups")
_NONE: Final = problems({404: "There is no such group."})
_STALE: Final = problems(
    {
        400: "If-Match is not an ETag.",
        412: "It was changed meanwhile.",
        428: "If-Match is missing.",
    }
)


@see.get("/groups", response_model=GroupPageShape, responses=problems({400: "No cursor."}))
def list_groups(
    request: Request, services: ServicesHere, asked: Annotated[GroupQuery, Query()]
) -> Response:
    """List groups of failures, the one that failed last first."""
    page = services.groups.get_groups(
        asked.wanted(), limit=asked.limit, after=cursor_after(asked.after)
    )
    told = group_page_json(page) | {"next": sealed(page.next) or None}
    return answer(told, headers=next_link(request, page.next))


@see.get("/groups/{fingerprint}", response_model=GroupDetailShape, responses=_NONE)
def show_group(services: ServicesHere, fingerprint: Fingerprint) -> Response:
    """Return one group, and what people did with it."""
    group = group_of(services, fingerprint)
    told = group_detail_json(group, services.groups.group_history(fingerprint))
    return answer(told, headers={"ETag": tag_of(group.revision)})


@act.patch("/groups/{fingerprint}", response_model=GroupShape, responses={**_NONE, **_STALE})
def amend_group(
    services: ServicesHere,
    caller: CallerHere,
    fingerprint: Fingerprint,
    asked: Amended,
    if_match: IfMatch = None,
) -> Response:
    """Change a group's owner, note, status or mute; `If-Match` names what you saw."""
    revision = seen(if_match)
    if if_match is None:
        msg = "send If-Match with the ETag of the group as you saw it"
        raise Problem(428, "if-match-missing", msg)
    if revision is None:
        revision = group_of(services, fingerprint).revision
    group = actions.amend_group(
        services, fingerprint, asked.amendment(), revision=revision, by=caller
    )
    return answer(group_json(group), headers={"ETag": tag_of(group.revision)})


@act.post("/groups/{fingerprint}/acts", response_model=ResultsShape, responses={**_NONE, **AS_SEEN})
def act_on_group(
    services: ServicesHere,
    caller: CallerHere,
    choice: ChoiceHere,
    fingerprint: Fingerprint,
    asked: GroupVerb,
) -> Response:
    """Do a verb to the entries of a group as its dry run told them."""
    group_of(services, fingerprint)
    about = About(EntryFilter(fingerprint=fingerprint), None, asked.verb, asked.limit)
    bulk = actions.BulkRequest(asked.verb, asked.note, caller, asked.dry_run)
    told = act_on_found(services, about, bulk, choice, asked.precondition)
    return answer(results_json(told, dry_run=asked.dry_run))


router = pages()
_ON_A_PAGE: Final = 50
_SAMPLES: Final = 20
#: How long a group may be muted from its page.
_MUTES: Final = {
    "1 hour": timedelta(hours=1),
    "8 hours": timedelta(hours=8),
    "1 day": timedelta(days=1),
    "7 days": timedelta(days=7),
}


@router.get("/groups")
def groups_page(request: Request, services: ServicesHere) -> Response:
    """Show groups of failures, the one that failed last first."""
    asked = filled(GroupQuery, request, open_only=request.query_params.get("open_only", "true"))
    page = services.groups.get_groups(
        asked.wanted(), limit=_ON_A_PAGE, after=cursor_after(asked.after)
    )
    return render(
        request,
        "groups.html",
        groups=page.groups,
        asked=asked,
        statuses=list(GroupStatus),
        next_page=next_query(request, page.next),
        stats=services.ledger.get_failure_stats(),
        unread={name: depth for name, depth in sorted(services.unread().items()) if depth.waiting},
    )


@router.get("/groups/{fingerprint}")
def group_page(request: Request, services: ServicesHere, fingerprint: Fingerprint) -> Response:
    """Show one group: its entries, who looks after it, what can be done."""
    group = group_of(services, fingerprint)
    wanted = EntryFilter(fingerprint=fingerprint)
    page = services.ledger.get_failed_events(wanted, status=None, limit=_SAMPLES)
    sample = services.ledger.open(group.latest_entry_id) if group.latest_entry_id else None
    return render(
        request,
        "group.html",
        group=group,
        entries=page.entries,
        behind=services.behind(page.entries),
        more=bool(page.next),
        sample=sample,
        history=services.groups.group_history(fingerprint),
        spent=services.facts.costs_said(services.ledger, group.fingerprint),
        statuses=[one for one in GroupStatus if one is not GroupStatus.REGRESSED],
        mutes=list(_MUTES),
        longest_owner=LONGEST_OWNER,
        longest_note=LONGEST_NOTE,
        verbs=list(Verb),
    )


@router.post("/groups/{fingerprint}")
def amend_from_page(request: Request, services: ServicesHere, fingerprint: Fingerprint) -> Response:
    """Change what people say of a group."""
    form = form_of(request)
    actions.amend_group(
        services,
        fingerprint,
        _amendment(services, form),
        revision=number_in(form, "revision"),
        by=caller_of(request),
    )
    return go(f"/groups/{group_address(fingerprint)}?done=amended")


@router.get("/groups/{fingerprint}/replay")
def ask_replay(request: Request, services: ServicesHere, fingerprint: Fingerprint) -> Response:
    """Show how many entries a replay would send, and ask for its plan."""
    operator_of(request)
    return _replay_form(request, services, group_of(services, fingerprint))


@router.post("/groups/{fingerprint}/replay")
def replay_group(request: Request, services: ServicesHere, fingerprint: Fingerprint) -> Response:
    """Begin the replay of a group; the same form twice is one job."""
    group, form = group_of(services, fingerprint), form_of(request)
    try:
        plan = _plan_in(form).plan()
    except (ValidationError, ValueError) as error:
        return _replay_form(request, services, group, form, _why(error))
    caller, note, key = caller_of(request), note_in(form), form.get("form_key", "")
    until = min(moment_in(form, "until"), _moment(services, fingerprint))
    selection = _selection(fingerprint, until)
    begun = services.jobs.open_job(
        actions.job_id_of(selection, plan, by=caller, note=note, key=key)
    )
    if begun is None and counted(services, selection)[1] != form.get("seen"):
        msg = "nothing was begun: by now it is about other entries, look again"
        return _replay_form(request, services, group, form, msg, status=412)
    job = actions.begin_job(services, selection, plan, by=caller, note=note, key=key)
    return go(f"/jobs/{job.id}")


def _selection(fingerprint: str, until: datetime) -> Selection:
    return Selection(wanted=EntryFilter(fingerprint=fingerprint, until=until))


def _moment(services: Services, fingerprint: str) -> datetime:
    return moment_of(services, EntryFilter(fingerprint=fingerprint))


def _replay_form(
    request: Request,
    services: Services,
    group: Group,
    form: dict[str, str] | None = None,
    problem: str = "",
    *,
    status: int = 422,
) -> Response:
    until = _moment(services, group.fingerprint)
    details = _looked_at(services, group.fingerprint, until)
    told, seen = counted(services, _selection(group.fingerprint, until))
    plan = {
        "stages": ", ".join(map(str, DEFAULT_STAGES)),
        "rate": "50",
        "in_flight": "100",
        "halt_percent": "20",
        "note": "",
    }
    return render(
        request,
        "replay.html",
        status=status if problem else 200,
        group=group,
        spent=services.facts.costs_said(services.ledger, group.fingerprint),
        told=told,
        until=until,
        plan=order_in({}) | plan | (form or {}) | {"until": until.isoformat(), "seen": seen},
        **shown_configuration(services, details, form),
        looked_at=len(details),
        targets=services.replayer.targets,
        stale=group.reason == Reason.SEQUENCE_MISMATCH,
        proposes=services.approves_edits,
        problem=problem,
    )


def _looked_at(services: Services, fingerprint: str, until: datetime) -> list[EntryDetail]:
    """Some of the letters that a replay would send, which tell what they are pinned to."""
    wanted = EntryFilter(fingerprint=fingerprint, until=until)
    entries = services.ledger.get_failed_events(wanted, limit=_SAMPLES).entries
    return [one for entry in entries if (one := services.ledger.open(entry.id)) is not None]


def _plan_in(form: dict[str, str]) -> JobPlanRequest:
    """The plan that a person filled in; raises ValueError."""
    stages = [one.strip() for one in form.get("stages", "").split(",") if one.strip()]
    rate = form.get("rate", "").strip()
    return JobPlanRequest.model_validate(
        {
            "stages": stages,
            "rate": rate or None,
            "in_flight": form.get("in_flight", ""),
            "halt_share": float(form.get("halt_percent", "")) / 100,
            **order_in(form),
            "config": dict(chosen_in(form)),
        }
    )


def _why(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return "the halt share is a number of percent, like 20"
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"][:1])
    return f"{where}: {first['msg']}".removeprefix(": ")


def _amendment(services: Services, form: dict[str, str]) -> Amendment:
    mute = form.get("mute", "")
    span = _MUTES.get(mute)
    if mute not in {"", "unmute", *_MUTES}:
        raise Problem(422, "invalid", "the form holds what its page did not offer")
    try:
        return Amendment(
            status=GroupStatus(form["status"]) if form.get("status") else None,
            owner=form.get("owner", "").strip(),
            note=note_in(form, LONGEST_NOTE),
            muted_until=services.clock.now() + span if span else None,
            unmute=mute == "unmute",
        )
    except ConfigurationError as error:
        raise Problem(422, "invalid", str(error)) from error
    except ValueError:
        raise Problem(422, "invalid", "a group has no such status") from None
