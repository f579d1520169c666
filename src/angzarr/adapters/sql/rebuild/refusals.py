"""Why a rebuild cannot begin or go on, each as one sentence with its cure. Pure."""

from __future__ import annotations

from sqlalchemy.exc import IntegrityError

from angzarr.errors import StoreUnavailable
from angzarr.events.event import Event
from angzarr.projections.shadow_table import Plan
from angzarr.runtime.text import printable


def in_hand(plan: Plan) -> str:
    """Say that another rebuild is under way."""
    return (
        f"{plan.projection} is being rebuilt by another process just now: wait for it, or stop it"
        " first; a rebuild that was stopped is gone on with by the next one"
    )


def no_table(plan: Plan, name: str) -> str:
    """Say that there is no such table."""
    return (
        f"{plan.projection} names {name!r} in `tables`, and the database of the order has no table"
        " of that name: correct it, or, if the read model is somewhere else, leave `tables` out and"
        " rebuild it in place (--in-place)"
    )


def in_the_way(source: str, target: str, constraint: str) -> str:
    """Say that other tables refer to the read model."""
    return (
        f"{source} refers to {target} ({constraint}), all rows of which are replaced when a rebuild"
        f" is switched over: name {source} in `tables` too if it belongs to the read model, else"
        " make the foreign key DEFERRABLE and without an ON DELETE action, or drop it"
    )


def another(plan: Plan) -> str:
    """Say that the space is of another plan."""
    return (
        f"a rebuild of {plan.projection} was begun for other tables, other domains or another first"
        " sequence: remove what it has made (--abandon), and begin anew"
    )


def changed(plan: Plan, table: str) -> str:
    """Say that a live table is another one than the space has."""
    return (
        f"{table} was changed while {plan.projection} was rebuilt for it, so columns could be lost:"
        " nothing was done to it; remove what the rebuild has made (--abandon), and begin anew"
    )


def unknown(plan: Plan, events: int) -> str:
    """Say that so many events of the live lanes are beyond the event books."""
    return (
        f"{plan.projection} has handled or passed {events:,} events that are in no event book, so"
        " its read model would lose their effects: leave it as it is, or give them up (--force)"
    )


def unfit(plan: Plan, error: IntegrityError) -> str:
    """Say that the live tables do not take the rows."""
    said = printable(" ".join(str(error.orig).split()))
    return (
        f"the rebuilt read model of {plan.projection} breaks a rule of its live tables: {said};"
        " nothing was switched over"
    )


def ended(plan: Plan, event: Event) -> str:
    """Say that the projection ended the transaction that it was given."""
    return (
        f"{plan.projection} ended the transaction that it was given for {event.type}, so its"
        " effects could be there twice: do not commit or roll back its connection; mend that, and"
        " run the rebuild again, which begins anew then"
    )


def unheard(plan: Plan, away: StoreUnavailable) -> str:
    """Say that nobody knows whether a rebuild is done."""
    cure = (
        "see with --verify before you run it again" if plan.tables else
        "run it again, which ends it, or does all of it once more if it was done"
    )  # fmt: skip
    return (
        f"the database was lost while it was told to commit the rebuilt {plan.projection}, so it"
        f" may be done: {cure} ({away})"
    )


def stray(plan: Plan, table: str) -> str:
    """Say that the projection writes to a table outside of the read model."""
    return (
        f"{plan.projection} writes to {table}, which is not in its `tables`, so a rebuild would"
        " write there twice: name it there (without its schema), and begin anew; it wrote nothing"
    )
