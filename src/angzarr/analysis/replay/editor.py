"""Editor: makes of a person's data the replay that carries it, checked and protected (spec A5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from angzarr.analysis.ledger.entry import Entry, EntryDetail
from angzarr.analysis.ledger.failure import Failure
from angzarr.analysis.ledger.operator_actions import LONGEST_NOTE
from angzarr.analysis.ledger.replay_options import ReplayOrder
from angzarr.analysis.replay import edit
from angzarr.analysis.replay.edit import (
    HIDDEN,
    UNSEEN,
    Difference,
    Sides,
    Unfit,
    differences,
    encrypted_differences,
    hidden_as,
    is_cut,
    seen_differences,
    touches_hidden,
)
from angzarr.analysis.replay.replay import Replayer
from angzarr.dead_letters.letter import DeadLetter, Refusal
from angzarr.dead_letters.protection import is_sealed
from angzarr.dead_letters.redaction import hides
from angzarr.dead_letters.sealed_letters import came_encrypted
from angzarr.errors import DecodeError

_UNCHANGED: Final = Unfit("nothing was changed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An edit that fits, as it may be shown."""

    order: ReplayOrder
    changes: tuple[Difference, ...]
    #: Given where not all of the changes are shown.
    whole: Sides | None = None


class Opened(NamedTuple):
    """A letter with its data as the body has them, and the data as they may be shown."""

    whole: DeadLetter
    view: Any


class EditChanges(NamedTuple):
    """The changes of an edit, and all data before and after, as they may be shown."""

    changes: tuple[Difference, ...]
    sides: Sides

    @property
    def whole(self) -> Sides | None:
        """All data, where the changes do not tell all; else None."""
        return self.sides if is_cut(self.changes) else None


def edited_from(detail: EntryDetail, *, original: bool) -> Failure | Refusal:
    """The letter that an edit begins with: the last replay's, or that before the last edit."""
    if not original:
        return detail.unanswered.letter or detail.failure
    return detail.before or Refusal("it was never edited")


@dataclass(frozen=True, slots=True, kw_only=True)
class Editor:
    """Edits one entry at a time; raises what `Replayer` raises."""

    replayer: Replayer
    #: Reads data as a task declares it, or raises DecodeError; None: it takes anything.
    decoder: Callable[[str], Callable[[Any], Any] | None]
    #: What is done to a letter before it is kept.
    protect: Callable[[DeadLetter], DeadLetter]

    def shown(self, failure: Failure) -> Any:
        """The data that a person may see and change, or a Refusal."""
        opened = self._opened(failure)
        return opened if isinstance(opened, Refusal) else opened.view

    def draft(
        self,
        entry: Entry,
        failure: Failure,
        data: Any,
        *,
        now: Failure | None = None,
        to_handler: str = "",
    ) -> Draft | Refusal:
        """The edit of *entry* to *data*, or why there can be none; Unfit: the data's fault.

        *data* began with *failure*; *now* is what the next replay would send without the edit, if
        that is another: the changes are told against that. It must fit *to_handler*, if the replay
        goes to another one. It says nothing about whether a replay of *entry* may begin.
        """
        opened = self._opened(failure)
        if isinstance(opened, Refusal):
            return opened
        whole, view = opened
        value = edit.restored(data, view, edit.data_in(whole))
        if isinstance(value, Refusal):
            return value
        hidden = view != edit.data_in(whole)
        if problem := self._problem(to_handler or whole.message.task, value, hidden=hidden):
            return problem
        made = edit.with_data(whole, value)
        if isinstance(made, Refusal):
            return made
        made = edit.named(made, f"{entry.id[:12]}#{entry.replays + 1}")
        instead = failure if now is None else now
        told = self._told(instead, made, touched=touches_hidden(view, data))
        if isinstance(told, Refusal):
            return told
        return self._kept(made, failure, instead, told) if told.changes else _UNCHANGED

    def told(self, order: ReplayOrder) -> EditChanges | Refusal:
        """The changes by the edit that *order* carries, read from the letter that would be sent."""
        both = self._both(order)
        if isinstance(both, Refusal):
            return both
        before, after = both
        wholes = edit.data_in(before.whole), edit.data_in(after.whole)
        changes = seen_differences(before.view, after.view, *wholes)
        return EditChanges(changes, Sides(before.view, after.view))

    def _both(self, order: ReplayOrder) -> tuple[Opened, Opened] | Refusal:
        """The letters before the edit that *order* carries and after."""
        if order.letter is None or order.before is None:
            return Refusal("it carries no edit")
        before, after = self._opened(order.before), self._opened(order.letter, order.before)
        if isinstance(before, Refusal):
            return before
        if isinstance(after, Refusal):
            return after
        if after.view in HIDDEN:
            return Refusal("its data are hidden as a whole")
        return before, after

    def _told(self, failure: Failure, made: DeadLetter, *, touched: bool) -> EditChanges | Refusal:
        """The differences of *made* from *failure*, as far as they may be seen.

        Whether something hidden was *touched* depends on the input, not on the hidden value:
        the value must not be found out by trying.
        """
        before, after = self._opened(failure), self._view(made, failure)
        if isinstance(before, Refusal):
            return before
        if isinstance(after, Refusal):
            return after
        unseen = [Difference("", "", UNSEEN)] if touched else []
        changes = (*differences(before.view, after), *unseen)
        return EditChanges(changes, Sides(before.view, after))

    def _kept(
        self,
        made: DeadLetter,
        failure: Failure,
        instead: Failure,
        told: EditChanges,
    ) -> Draft | Refusal:
        said = told.changes
        if (came := self._encrypted(failure)) is not None:
            sealed = self.replayer.bodies.sealed(made, came)
            if isinstance(sealed, Refusal):
                return sealed
            made, said = sealed, encrypted_differences(said)
        kept = self.protect(made)
        if hides(kept) and not is_sealed(kept):
            return Refusal(
                "values of it would be removed and there is no key to seal them:"
                " set dlq.encryption_keys"
            )
        if isinstance(failure, DeadLetter) and is_sealed(failure) and not is_sealed(kept):
            return Refusal(
                "its worker sealed it, and this app would keep the edit open: give this app the"
                " settings of dlq.redact and dlq.encrypt that the worker has"
            )
        before = instead if isinstance(instead, DeadLetter) else None
        note = "; ".join(map(str, said))[:LONGEST_NOTE]
        order = ReplayOrder(letter=kept, before=before, said=note)
        return Draft(order=order, changes=told.changes, whole=told.whole)

    def _encrypted(self, failure: Failure) -> DeadLetter | None:
        """*failure* as it would be sent, if its body came encrypted; else None."""
        if not isinstance(failure, DeadLetter):
            return None
        letter = self.replayer.sendable(failure)
        return letter if isinstance(letter, DeadLetter) and came_encrypted(letter) else None

    def _opened(self, failure: Failure, filed: Failure | None = None) -> Opened | Refusal:
        """A letter as it is and as it may be shown, with what was hidden of *filed*."""
        whole = self._whole(failure)
        if isinstance(whole, Refusal):
            return whole
        view = self._view(whole, failure if filed is None else filed)
        return view if isinstance(view, Refusal) else Opened(whole, view)

    def _whole(self, failure: Failure) -> DeadLetter | Refusal:
        """The letter with its body, opened, and its data as the body has it."""
        letter = self.replayer.opened(failure)
        if isinstance(letter, Refusal):
            return letter
        data = edit.data_in(letter)
        if isinstance(data, Refusal):
            return data
        event = letter.event and replace(letter.event, data=data)
        return replace(edit.bare(letter), event=event)

    def _view(self, whole: DeadLetter, filed: Failure) -> Any:
        """The data as it may be shown, or a Refusal.

        It lacks what the settings of this app hide, and what was hidden of the letter as *filed*.
        """
        shown = self.protect(whole)
        data = shown.event.data if shown.event else edit.data_in(shown)
        if isinstance(data, Refusal) or not isinstance(filed, DeadLetter):
            return data
        if came_encrypted(filed) and not is_sealed(filed):  # who has its key may see it
            return data
        known = filed.event.data if filed.event else edit.data_in(filed)
        return data if isinstance(known, Refusal) else hidden_as(data, known)

    def _problem(self, task: str, data: Any, *, hidden: bool) -> Refusal | None:
        """Why *data* does not fit; a model's own words may repeat what is *hidden*."""
        decode = self.decoder(task)
        try:
            if decode is not None:
                decode(data)
        except DecodeError as error:
            why = "values of it are hidden, and so is the reason" if hidden else str(error)
            return Unfit(f"it does not fit the handler: {why}")
        return None
