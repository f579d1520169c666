"""angzarr projection skip, reset, begin: moves lanes past events, or back to their start."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import click

from angzarr.aggregates.book import Address, EventStore, Head
from angzarr.cli.application import load_application
from angzarr.cli.projection.view import (
    AggregateParam,
    check_domain_of,
    find,
    opened_books,
    opened_lanes,
)
from angzarr.cli.terminal import JSON, YES, print_json
from angzarr.facts.act import ActKind
from angzarr.ordering.lane import Place as LanePlace
from angzarr.ordering.lane import Waiting, Why
from angzarr.ordering.lane_view import LaneState, LaneView, lane_at
from angzarr.projections.checkpoint import OrderingStores, bookless_of
from angzarr.projections.ordered_handler import OrderedHandler, of_letter
from angzarr.runtime.text import printable
from angzarr.wiring.analysis_worker import person
from angzarr.wiring.operations import Operations
from angzarr.wiring.projections import reset_projection


@dataclass(frozen=True, slots=True, kw_only=True)
class Passing:
    """The events that stay unhandled when a lane moves on to `to`."""

    view: LaneView
    to: int
    #: How many of those that are missing are in the event book, at least.
    in_book: int = 0

    @property
    def known(self) -> tuple[Waiting, ...]:
        """What waits in the lane and is passed."""
        passed = range(self.view.next_sequence, self.to)
        return tuple(one for one in self.view.waiting if one.sequence in passed)

    @property
    def missing(self) -> int:
        """How many events are passed that the lane knows nothing of."""
        return self.to - self.view.next_sequence - len(self.known)

    def __str__(self) -> str:
        first, last = self.view.next_sequence, self.to - 1
        which = f"#{first}" if first == last else f"#{first} to #{last}"
        kinds = [f"{self.missing} missing{self._in_book()}"] if self.missing else []
        kinds += [f"{one.event_type} #{one.sequence} {_waits(one)}" for one in self.known]
        return f"{which} of {self.view.address} ({', '.join(kinds)})"

    def _in_book(self) -> str:
        if not self.in_book:
            return ""
        return f", {self.in_book} of which a worker would send again from the event book"


def over_gap(one: OrderedHandler, view: LaneView) -> Passing:
    """The skip to the first event that waits behind a gap; refuses where there is none."""
    if view.state is LaneState.GAP and view.first_behind is not None:
        return Passing(view=view, to=view.first_behind.sequence)
    if view.state is LaneState.BLOCKED and view.head is not None:
        raise click.ClickException(_refusal(one, view.head))
    why = {
        LaneState.EMPTY: "nothing waits in it",
        LaneState.READY: "its next event is parked and about to be handed out",
        LaneState.RETRYING: "its next event is being retried",
    }
    msg = f"{view.address} has no gap at #{view.next_sequence}: {why[view.state]}"
    raise click.ClickException(msg)


def up_to(one: OrderedHandler, view: LaneView, sequence: int, *, in_book: bool) -> Passing:
    """The skip to *sequence*; refuses to go back, past a dead letter or past the known events.

    *in_book*: whether the book of the aggregate has the event before *sequence*.
    """
    place = view.address
    if sequence <= view.next_sequence:
        msg = f"{place} is at #{view.next_sequence} already: a lane never goes back"
        raise click.ClickException(msg)
    known = max((waiting.sequence for waiting in view.waiting), default=-1) + 1
    if sequence > known and not in_book:
        instead = f"skip to #{known}" if known > view.next_sequence else "wait until it is there"
        msg = (
            f"there is no known event #{sequence - 1} of {place}, and a skip beyond what is known"
            f" would pass events that are still to come: {instead}"
        )
        raise click.ClickException(msg)
    passing = Passing(view=view, to=sequence)
    for waiting in passing.known:
        if waiting.why is Why.DEAD_LETTER:
            raise click.ClickException(_refusal(one, waiting))
    return passing


def _refusal(one: OrderedHandler, letter: Waiting) -> str:
    place = letter.lane.address
    _, skip = of_letter(one, letter)
    return f"#{letter.sequence} of {place} is a dead letter, which is skipped with: {skip}"


def _waits(waiting: Waiting) -> str:
    return "parked" if waiting.why is Why.EARLY else "being retried"


_log: Final = logging.getLogger("angzarr.projections")

#: More than a lane may hold by any sensible setting.
_ALL: Final = 1_000_000
#: Events of a book that are looked at before a skip.
_PAGE: Final = 1_000


@click.command()
@click.argument("name")
@click.argument("place", type=AggregateParam(), metavar="DOMAIN/ROOT[@EDITION]")
@click.option("--to", "sequence", type=click.IntRange(1), help="The sequence to go on with.")
@click.option("--gap", is_flag=True, help="Or: the first event that waits behind the gap.")
@YES
@JSON
@click.pass_obj
def skip(
    app_name: str | None, /, name: str, place: Address, *, yes: bool, as_json: bool, **to: Any
) -> None:
    """Give up on events that NAME misses.

    They are those of one aggregate, and are not handled if they come later. A dead letter is
    skipped with `angzarr dlq skip` instead.
    """
    if (to["sequence"] is None) == (not to["gap"]):
        raise click.UsageError("say how far: either --to SEQUENCE or --gap")
    ops = load_application(app_name)
    one = find(ops, name)
    check_domain_of(one, place)
    with opened_lanes(ops) as stores, opened_books(ops) as books:
        passing = _chosen(one, lane_at(stores.lanes, one.lane(place), _ALL), books, to["sequence"])
        if not yes:
            what = f"{one.name} gives up on {passing}: it will never be handled. Skip it?"
            click.confirm(printable(what), abort=True, err=True)
        now_at = _skip(ops, stores, one, place, passing)
    _tell(passing, now_at, as_json=as_json)


def _skip(
    ops: Operations, stores: OrderingStores, one: OrderedHandler, place: Address, passing: Passing
) -> LanePlace:
    """Let the lane go on behind what is passed; return it as it is then."""
    with ops.acts.recording(
        ActKind.PROJECTION_SKIPPED,
        f"{one.task}:{place}",
        by=person(),
        tool_id=one.task,
        entity_id=place.root,
    ) as act:
        now_at = stores.lanes.skip_to(one.lane(place), passing.to)
        _log.warning("lane_skipped: %s gave up on %s, by %s", one.name, passing, person())
        act.done(
            {
                "aggregate": str(place),
                "from_sequence": passing.view.next_sequence,
                "next_sequence": now_at.next_sequence,
                "missing": passing.missing,
                "passed": str(passing),
            }
        )
    return now_at


def _chosen(
    one: OrderedHandler, view: LaneView, books: EventStore | None, sequence: int | None
) -> Passing:
    if sequence is None:
        passing = over_gap(one, view)
    else:
        in_book = books is not None and _has(books, view.address, sequence - 1)
        passing = up_to(one, view, sequence, in_book=in_book)
    return passing if books is None else replace(passing, in_book=_missing_in(books, passing))


def _has(books: EventStore, address: Address, sequence: int) -> bool:
    """True if the book at *address* has an event *sequence*."""
    return bool(books.pending([Head(address, sequence)]))


def _missing_in(books: EventStore, passing: Passing) -> int:
    """Count the events in the book that the lane knows nothing of and passes, up to a page."""
    address, first = passing.view.address, passing.view.next_sequence
    there = books.scan([address.domain], Head(address, first), min(passing.to - first, _PAGE))
    known = {waiting.sequence for waiting in passing.known}
    mine = [one for one in there if (one.root, one.edition or "") == address[1:]]
    return sum((one.sequence or 0) < passing.to and one.sequence not in known for one in mine)


def _tell(passing: Passing, now_at: LanePlace, *, as_json: bool) -> None:
    if as_json:
        told = {
            **passing.view.address._asdict(),
            "from": passing.view.next_sequence,
            "missing": passing.missing,
            "passed": [waiting.sequence for waiting in passing.known],
            **now_at._asdict(),
        }
        print_json(told)
    else:
        click.echo(printable(f"skipped {passing}; it goes on with #{now_at.next_sequence}"))


@click.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="Also where events it has handled cannot come again.")
@YES
@JSON
@click.pass_obj
def reset(app_name: str | None, name: str, *, force: bool, yes: bool, as_json: bool) -> None:
    """Let NAME begin anew, without read model.

    Its checkpoint is cleared and its lanes begin anew; what is parked stays parked. Of another
    handler than a projection the effects stay.
    """
    ops = load_application(app_name)
    one = find(ops, name)
    if not force:
        _check_books(ops, one)
    if not yes:
        with opened_lanes(ops) as stores:
            (summary,) = stores.lanes.summaries([one.task])
        what = "its read model is emptied" if one.order.moves else "its effects stay as they are"
        asked = f"Reset {one.name}: {what}, and {summary.lanes} lanes begin anew?"
        click.confirm(asked, abort=True, err=True)
    lanes = reset_projection(ops, one.task, by=person())
    if as_json:
        print_json({"name": one.name, "lanes": lanes})
    else:
        click.echo(f"{one.name} is reset: {lanes} lanes begin anew. {_what_now(one)}")


def _check_books(ops: Operations, one: OrderedHandler) -> None:
    """Refuse where lanes would wait for events that no longer exist."""
    with opened_lanes(ops) as stores, opened_books(ops) as books:
        lost = bookless_of(
            one.task, one.order, store=books, lanes=stores.lanes, checkpoints=stores.checkpoints
        )
    if lost:
        msg = (
            f"{one.name} has handled {lost} events or more that are in no event book: no source can"
            " send them again, and what follows them in their aggregates would wait for ever."
            " Publish them again afterwards, or skip those gaps, and say --force"
        )
        raise click.ClickException(msg)


def _what_now(one: OrderedHandler) -> str:
    if one.order.moves:
        return f"Fill it with: angzarr projection rebuild {shlex.quote(one.name)}"
    return "It takes events again from the first one of each aggregate on, as they come"


#: Books whose lanes are looked at at once, as many as `Lanes.places` takes.
_RESET_PAGE: Final = 1_000


@click.command()
@click.argument("name")
@click.option("--at-present", is_flag=True, required=True, help="Behind all that is in the books.")
@YES
@JSON
@click.pass_obj
def begin(app_name: str | None, /, name: str, *, yes: bool, as_json: bool, **_said: bool) -> None:
    """Let NAME begin behind what has happened.

    Each aggregate of which it has handled nothing begins at the end of its event book: what is
    there is not handled, nor sent again. The others stay where they are. Before NAME has handled
    anything it may be run again, for what has come since.
    """
    ops = load_application(app_name)
    one = find(ops, name)
    with opened_lanes(ops) as stores, opened_books(ops) as books:
        if books is None:
            msg = "there are no event books (`books`), so the past events are not known"
            raise click.ClickException(msg)
        new = partial(_new, one, stores, books)
        if not yes:
            spans = [end - place for _, place, end in new()]
            what = (
                f"{one.name} begins behind {sum(spans):,} events of {len(spans):,} aggregates, none"
                " of which it will handle. Go on?"
            )
            click.confirm(printable(what), abort=True, err=True)
        moved, passed = 0, 0
        recording = ops.acts.recording(
            ActKind.PROJECTION_BEGUN, one.task, by=person(), tool_id=one.task
        )
        with recording as act:
            try:
                for address, place, end in new():
                    if stores.lanes.skip_to(one.lane(address), end).next_sequence == end:
                        moved, passed = moved + 1, passed + end - place
            finally:
                if moved:
                    _log.warning(
                        "lanes_begun: %s begins behind %d events of %d aggregates, by %s",
                        one.name, passed, moved, person(),
                    )  # fmt: skip
                    act.done({"aggregates": moved, "events": passed})
    if as_json:
        print_json({"name": one.name, "aggregates": moved, "events": passed})
    else:
        click.echo(f"{one.name} begins behind {passed:,} events of {moved:,} aggregates")


def _new(
    one: OrderedHandler, stores: OrderingStores, books: EventStore
) -> Iterator[tuple[Address, int, int]]:
    """Yield aggregates without handled events: their places, and the ends of their books.

    Without any handled event, an earlier command moved those that are not at their first place.
    """
    untouched = stores.checkpoints.get(one.task) is None
    for page in _pages(one, books):
        known = stores.lanes.places(one.task, [head.address for head in page])
        for address, end in page:
            place = known.get(address, one.order.first)
            if place < end and (untouched or address not in known):
                yield address, place, end


def _pages(one: OrderedHandler, books: EventStore) -> Iterator[list[Head]]:
    after: Address | None = None
    while page := list(books.heads(sorted(one.order.domains), after, _RESET_PAGE)):
        yield page
        after = page[-1].address
