"""Facts as JSON and as a line of text: the command line, the HTTP API and the pages say the same.

Field names are those of spec F1 and do not change. An error fact says in its data whether it is
resolved, and by which fact; a cost fact, whether its run failed, and by which error; the fact that
an act begins, whether it ended, and by which fact. They are found when they are asked for, whatever
was written with the fact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import islice
from typing import Any, Final, NamedTuple

from angzarr.facts.act import ActStage
from angzarr.facts.cost import total
from angzarr.facts.fact import Fact
from angzarr.facts.query import (
    LONGEST_PAGE,
    FactCount,
    FactField,
    FactPage,
    FactQuery,
    FactReader,
)
from angzarr.facts.resolution import COST, ERROR, LIFECYCLE, begins_act

_NAMES: Final = (
    "tenant_id", "entity_id", "tool_id", "event_id", "trace_id", "asset_id", "config_id",
    "config_version", "resolves",
)  # fmt: skip
#: The keys of data by which an error fact says what became of it.
RESOLVED: Final = "resolved"
RESOLUTION: Final = "resolution_fact_id"
#: Those by which a cost fact says whether its run failed.
FAILED: Final = "failed"
FAILURE: Final = "error_fact_id"
#: Those by which the fact that an act begins says whether it ended.
ENDED: Final = "ended"
END: Final = "end_fact_id"
#: What people read of an act that has no end.
NO_END: Final = (
    "It has no end: its process is still at it, was killed, or could not write its end. See whether"
    " it was done, half done or not done before you go on."
)
#: Facts whose links are asked for at once.
_AT_ONCE: Final = 500


def links_of(reader: FactReader, facts: Sequence[Fact]) -> Mapping[str, Fact]:
    """By the id of a fact: what resolved an error, the error of a cost's run, the end of an act.

    Raises Unavailable.
    """
    return {**reader.resolutions(facts), **reader.failures(facts), **reader.ends(facts)}


def fact_json(fact: Fact, link: Fact | None = None) -> dict[str, Any]:
    """*fact* as a JSON object; *link* is its link, if it has one (see `links_of`)."""
    cost = fact.cost
    return {
        "id": fact.id,
        "type": fact.type,
        "subtype": fact.subtype,
        "timestamp": fact.at,
        **{name: getattr(fact, name) for name in _NAMES},
        "amount": None if cost is None else f"{cost.amount:f}",
        "currency": cost and cost.currency,
        "from_entity": cost and cost.from_entity,
        "to_entity": cost and cost.to_entity,
        "data": shown_data(fact, link),
    }


def shown_data(fact: Fact, link: Fact | None) -> dict[str, Any]:
    """The data of *fact*; of an error or an act with what became of it, of a cost what failed."""
    data = dict(fact.data)
    if fact.type == ERROR:
        data |= {RESOLVED: link is not None, RESOLUTION: link and link.id}
    if fact.type == COST:
        data |= {FAILED: link is not None, FAILURE: link and link.id}
    if begins_act(fact):
        data |= {ENDED: link is not None, END: link and link.id}
    return data


def facts_json(facts: Sequence[Fact], links: Mapping[str, Fact]) -> list[dict[str, Any]]:
    """*facts* as JSON objects, in their order."""
    return [fact_json(one, links.get(one.id)) for one in facts]


def fact_page_json(page: FactPage, links: Mapping[str, Fact]) -> dict[str, Any]:
    """*page* as a JSON object; `next` is the cursor of the next one, or null."""
    return {"facts": facts_json(page.facts, links), "next": page.next or None}


class FactDetail(NamedTuple):
    """A fact, the runs of its event by its handler, and all about it as a JSON object."""

    fact: Fact
    runs: tuple[Fact, ...]
    told: dict[str, Any]


def detail_of(reader: FactReader, fact: Fact) -> FactDetail:
    """*fact* with what it resolved, and all runs of its event by its handler.

    Raises Unavailable.
    """
    page = FactPage()
    if fact.event_id is not None:
        page = reader.history(fact.event_id, fact.tool_id)
    links = links_of(reader, [fact, *page.facts])
    told = fact_json(fact, links.get(fact.id)) | {
        "resolved_facts": [one.id for one in reader.resolved_by(fact.id)],
        "runs": facts_json(page.facts, links),
        "earlier_runs": page.more,
    }
    if fact.type == ERROR:
        told["data"] |= incurred_json(incurred_by(reader, fact))
    return FactDetail(fact, page.facts, told)


def incurred_by(reader: FactReader, error: Fact) -> dict[str, Decimal]:
    """What the run that ended with *error* has cost, by currency; raises Unavailable."""
    if error.event_id is None:
        return {}
    wanted = FactQuery(type=COST, event_id=error.event_id, tool_id=error.tool_id)
    costs = reader.find(wanted, limit=LONGEST_PAGE).facts
    failures = reader.failures(costs)
    return total(
        one.cost
        for one in costs
        if one.cost is not None and one.id in failures and failures[one.id].id == error.id
    )


def incurred_json(sums: Mapping[str, Decimal]) -> dict[str, Any]:
    """What an error fact says of its costs; several currencies stand in a list."""
    if not sums:
        return {}
    told = [{"cost_incurred": f"{sums[one]:f}", "currency": one} for one in sorted(sums)]
    return dict(told[0]) if len(told) == 1 else {"costs_incurred": told}


def resolved_lines(reader: FactReader, facts: Iterable[Fact]) -> Iterator[dict[str, Any]]:
    """*facts* as JSON objects, a few at a time; raises Unavailable."""
    taken = iter(facts)
    while some := list(islice(taken, _AT_ONCE)):
        yield from facts_json(some, links_of(reader, some))


def counts_json(counts: Sequence[FactCount], by: Sequence[FactField]) -> list[dict[str, Any]]:
    """*counts* as JSON objects, each with the fields that it is *by*."""
    return [_valued(by, one.values) | {"facts": one.facts} for one in counts]


def summary_of(fact: Fact) -> str:
    """What happened, in one line: an error and its code, an amount, or who did it and why."""
    if fact.cost is not None:
        to = f" to {fact.cost.to_entity}" if fact.cost.to_entity else ""
        return f"{fact.cost.amount:f} {fact.cost.currency}{to}"
    data = fact.data
    if fact.type == ERROR:
        told = (data.get("error_code"), data.get("error_message"))
        return ": ".join(str(one) for one in told if one not in (None, ""))
    why = str(data.get("reason") or data.get("step") or "")
    if fact.type == LIFECYCLE and (stage := _STAGES.get(fact.subtype)) and data.get("act"):
        of, error = f"{data.get('act')} of {data.get('subject')}", data.get("error") or "unknown"
        why = stage.format(of=of, error=error)
    by = f"by {fact.by}" if fact.by else ""
    named = (fact.config_id, fact.config_version) if data.get("configuration") else ()
    what = " ".join(filter(None, named))
    return ": ".join(filter(None, (" ".join(filter(None, (what, by))), why)))


#: How an act stands, by the subtype of the fact that says so.
_STAGES: Final[dict[str, str]] = {
    ActStage.BEGUN: "{of} begins",
    ActStage.FAILED: "{of} failed: {error}",
    ActStage.CHANGED_NOTHING: "{of} changed nothing",
}


def _valued(by: Sequence[FactField], values: Sequence[str | None]) -> dict[str, Any]:
    return {field.value: value for field, value in zip(by, values, strict=True)}
