"""Editor: makes of a person's data the replay that carries it, checked and protected (spec A5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from angzarr.analysis import edit
from angzarr.analysis.edit import Difference, Unfit
from angzarr.analysis.entry import Entry, EntryDetail, Failure
from angzarr.analysis.replay_order import ReplayOrder
from angzarr.analysis.replayer import Replayer
from angzarr.analysis.verb import LONGEST_NOTE
from angzarr.dead_letters.letter import DeadLetter
from angzarr.dead_letters.redaction import hides
from angzarr.dead_letters.refusal import Refusal
from angzarr.dead_letters.sealing import is_sealed
from angzarr.errors import DecodeError


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An edit that fits, as it may be shown."""

    order: ReplayOrder
    changes: tuple[Difference, ...]


def edited_from(detail: EntryDetail, *, original: bool) -> Failure | Refusal:
    """Return what an edit begins with: the last replay's data, or those before the last edit."""
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
        """Return the data that a person may see and change, or a Refusal."""
        whole = self._whole(failure)
        return whole if isinstance(whole, Refusal) else self._view(whole)

    def draft(self, entry: Entry, failure: Failure, data: Any) -> Draft | Refusal:
        """Return the edit of *entry* to *data*, or why there can be none; Unfit: the data's fault.

        It says nothing about whether a replay of *entry* may begin.
        """
        whole = self._whole(failure)
        if isinstance(whole, Refusal):
            return whole
        view = self._view(whole)
        value = edit.restored(data, view, edit.data_in(whole))
        if isinstance(value, Refusal):
            return value
        if not edit.differences(edit.data_in(whole), value):
            return Unfit("nothing was changed")
        hidden = view != edit.data_in(whole)
        if problem := self._problem(whole.message.task, value, hidden=hidden):
            return problem
        made = edit.with_data(whole, value)
        if isinstance(made, Refusal):
            return made
        return self._draft(edit.named(made, f"{entry.id[:12]}#{entry.replays + 1}"), whole, failure)

    def changes(self, order: ReplayOrder) -> tuple[Difference, ...] | Refusal:
        """Return what the edit that *order* carries changes, read from what would be sent."""
        if order.letter is None or order.before is None:
            return Refusal("it carries no edit")
        before = self._whole(order.before)
        if isinstance(before, Refusal):
            return before
        after = self._whole(order.letter)
        return after if isinstance(after, Refusal) else self._changes(before, after)

    def _draft(self, made: DeadLetter, whole: DeadLetter, failure: Failure) -> Draft | Refusal:
        changes = self._changes(whole, made)
        kept = self.protect(made)
        if hides(kept) and not is_sealed(kept):
            return Refusal(
                "values of it would be removed and there is no key to seal them:"
                " set dlq.encryption_keys"
            )
        said = "; ".join(map(str, changes))[:LONGEST_NOTE]
        before = failure if isinstance(failure, DeadLetter) else None
        return Draft(order=ReplayOrder(letter=kept, before=before, said=said), changes=changes)

    def _changes(self, before: DeadLetter, after: DeadLetter) -> tuple[Difference, ...]:
        """Return the difference of two letters that were opened, as it may be shown."""
        return edit.seen_differences(
            self._view(before), self._view(after), edit.data_in(before), edit.data_in(after)
        )

    def _whole(self, failure: Failure) -> DeadLetter | Refusal:
        """Return the letter with its body, opened, and its data as the body has it."""
        letter = self.replayer.sendable(failure)
        if isinstance(letter, Refusal):
            return letter
        data = edit.data_in(letter)
        if isinstance(data, Refusal):
            return data
        event = letter.event and replace(letter.event, data=data)
        return replace(edit.bare(letter), event=event)

    def _view(self, whole: DeadLetter) -> Any:
        """Return the data as it may be shown: without what the settings hide."""
        shown = self.protect(whole)
        return shown.event.data if shown.event else edit.data_in(shown)

    def _problem(self, task: str, data: Any, *, hidden: bool) -> Refusal | None:
        """Return why *data* does not fit; a model's own words may repeat what is *hidden*."""
        decode = self.decoder(task)
        try:
            if decode is not None:
                decode(data)
        except DecodeError as error:
            why = "values of it are hidden, and so is the reason" if hidden else str(error)
            return Unfit(f"it does not fit the handler: {why}")
        return None
