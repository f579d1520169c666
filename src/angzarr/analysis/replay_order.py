"""ReplayOrder: what a person wants of one replay besides the same message again. A value.

It is kept with the number of the replay, so that whoever publishes that number sends the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from angzarr.dead_letters.letter import DeadLetter
from angzarr.events import headers as names
from angzarr.events.event import task_id_for


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOrder:
    """Where a replay goes and what it carries; empty: as the letter says."""

    to_queue: str = ""
    to_handler: str = ""
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
        edited = f"edited: {self.said}" if self.letter else ""
        return ", ".join(filter(None, (handler, queue, edited)))


AS_IT_IS = ReplayOrder()
#: Begins what the history says of an edit that is sent again.
AGAIN: Final = "as before: "


def continued(order: ReplayOrder, last: ReplayOrder) -> ReplayOrder:
    """Return *order* with the edit of *last*, the replay before it that no letter answered.

    Such an edit is nowhere but in that order: the entry's letter has the data before.
    """
    if order.letter is not None or last.letter is None:
        return order
    said = AGAIN + last.said.removeprefix(AGAIN)
    return replace(order, letter=last.letter, before=last.before, said=said)


def redirected(letter: DeadLetter, order: ReplayOrder, home: str) -> DeadLetter:
    """Return *letter* with its message for where *order* sends it.

    *home* is the queue of the handler that *order* names. Another handler has a claim of its own
    for the same event (decisions 13), and the task id that a publisher would have given it.
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
