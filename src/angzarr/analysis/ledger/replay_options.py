"""ReplayOrder: what a person wants of one replay besides the same message again. A value.

It is kept with the number of the replay, so that every publisher of that number sends the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from angzarr.aggregates.command import is_command
from angzarr.dead_letters.letter import DeadLetter, Refusal
from angzarr.events import headers as names
from angzarr.events.event import task_id_for

#: What a person is to know who sends a stale command as it is.
STALE_AGAIN: Final = (
    "as it is, a stale command is refused again unless its aggregate was changed by hand;"
    " with a fresh sequence it is decided on whatever is there"
)


class Expectation(StrEnum):
    """How the sequence travels at which a command expects its aggregate (spec C2)."""

    AS_IS = "as_is"
    FRESH_SEQUENCE = "fresh_sequence"  # it expects nothing: decided on whatever is there


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOrder:
    """Where a replay goes and what it carries; empty: as the letter says."""

    to_queue: str = ""
    to_handler: str = ""
    sequence: Expectation = Expectation.AS_IS
    #: Version by configuration, sorted: what stands in for what the letter is pinned to. Fixed
    #: when a person chose it; empty: as pinned.
    config: tuple[tuple[str, str], ...] = ()
    #: The letter with the data that a person gave it, protected as any letter is that is kept.
    letter: DeadLetter | None = None
    #: The letter as it was before; kept, since a failure of the edited replay takes its place.
    before: DeadLetter | None = None
    #: What was changed, for the history.
    said: str = ""

    def __bool__(self) -> bool:
        return self != AS_IT_IS

    def __str__(self) -> str:
        queue = f"to queue {self.to_queue}" if self.to_queue else ""
        handler = f"by handler {self.to_handler}" if self.to_handler else ""
        fresh = _SAID.get(self.sequence, str(self.sequence))
        edited = "" if self.letter is None else f"edited: {self.said}" if self.said else "edited"
        return ", ".join(filter(None, (handler, queue, fresh, _versions(self.config), edited)))


AS_IT_IS = ReplayOrder()
_SAID: Final = {
    Expectation.AS_IS: "",
    Expectation.FRESH_SEQUENCE: "with a fresh sequence",
}
#: Configurations that the history names.
_MOST_SAID: Final = 5


def _versions(config: tuple[tuple[str, str], ...]) -> str:
    """What the history says of versions that a person chose."""
    if not config:
        return ""
    said = " and ".join(f"{name} {version}" for name, version in config[:_MOST_SAID])
    more = f" and {len(config) - _MOST_SAID} more" if len(config) > _MOST_SAID else ""
    return f"with configuration {said}{more} where it was pinned to another"


#: Begins what the history says of an edit that is sent again.
AGAIN: Final = "as before: "


def continued(order: ReplayOrder, last: ReplayOrder) -> ReplayOrder:
    """*order* with the edit of *last*, the replay before it that no letter answered.

    Such an edit is nowhere but in that order: the entry's letter has the data before.
    """
    if order.letter is not None or last.letter is None:
        return order
    return carrying(order, replace(last, said=AGAIN + last.said.removeprefix(AGAIN)))


def carrying(order: ReplayOrder, edit: ReplayOrder) -> ReplayOrder:
    """*order* with the data of *edit*."""
    return replace(order, letter=edit.letter, before=edit.before, said=edit.said)


def redirected(letter: DeadLetter, order: ReplayOrder, home: str) -> DeadLetter:
    """*letter* with its message for where *order* sends it.

    *home* is the queue of the handler that *order* names. Another handler has a claim of its own
    for the same event, and the task id that a publisher would have given it.
    """
    if not (order.to_queue or order.to_handler):
        return letter
    message = letter.message
    queue = order.to_queue or (home if order.to_handler else message.queue)
    headers = dict(message.headers)
    if order.to_handler and order.to_handler != message.task:
        event_id = names.event_id_of(headers)
        headers |= {
            "task": order.to_handler,
            "id": task_id_for(event_id, order.to_handler),
            names.EVENT_ID: event_id,
            names.ORIGINAL_MESSAGE_ID: headers.get(names.ORIGINAL_MESSAGE_ID) or message.id,
        }
    sent = replace(message, queue=queue, headers=headers)
    if queue != message.queue:
        sent = replace(sent, exchange="", routing_key=queue)
    return replace(letter, message=sent)


def expecting(letter: DeadLetter, order: ReplayOrder) -> DeadLetter | Refusal:
    """*letter* with its message expecting what *order* says, or why it cannot."""
    if order.sequence is Expectation.AS_IS:
        return letter
    message = letter.message
    if order.sequence is not Expectation.FRESH_SEQUENCE:
        return Refusal(f"this release does not know how to send it {str(order.sequence)!r}")
    if not is_command(message.task):
        return Refusal(
            f"only a command expects a sequence, and {message.task or 'this'!r} is none: replay it"
            " as it is"
        )
    headers = {name: value for name, value in message.headers.items() if name != names.SEQUENCE}
    return replace(letter, message=replace(message, headers=headers))


def repinned(letter: DeadLetter, order: ReplayOrder) -> DeadLetter:
    """*letter* with its message pinned to the versions of *order*, where it is pinned at all.

    What it was never pinned to is read anew, and needs no pin.
    """
    chosen, before = dict(order.config), names.pins_of(letter.message.headers)
    after = {name: chosen.get(name, version) for name, version in before.items()}
    if after == before:
        return letter
    headers = {**letter.message.headers, **names.pin_headers(after)}
    event = letter.event and replace(letter.event, config_pins=after)
    return replace(letter, message=replace(letter.message, headers=headers), event=event)
