"""GroupSweep: all groups in turn, a page at a time: those that failed last, open ones, and any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from angzarr.analysis.ledger.group import Group, GroupFilter, GroupPage, Groups

#: Groups read at once.
PAGE: Final = 200
#: Also those whose entries a rule was done with when it filed them: nobody has seen them.
_ALL: Final = GroupFilter(open_only=False)


@dataclass(slots=True, kw_only=True)
class GroupSweep:
    """Reads at most three pages a step, which costs the same however many groups there are.

    What fails is on the first page at once; what a step misses, as when letters come late, a later
    one sees: of open groups sooner, as their sweep is shorter than that of all.
    """

    groups: Groups
    #: Open entries by (domain, class of their group), as of the last whole sweep.
    counted: Mapping[tuple[str, str], int] = field(default_factory=dict, init=False)
    _after: str = field(default="", init=False)
    #: The same of the sweep of all groups.
    _after_all: str = field(default="", init=False)
    _counting: Counter[tuple[str, str]] = field(default_factory=Counter, init=False)

    def step(self, *, whole: bool = False) -> list[Group]:
        """Return the groups that failed last, and the next ones; *whole*: all open ones."""
        first = self.groups.get_groups(_ALL, limit=PAGE)
        if not (self._after and first.next):
            self._counting.clear()
            return _once(self._swept(first, whole=whole))
        rest = self.groups.get_groups(_ALL, limit=PAGE, after=self._after_all or first.next)
        self._after_all = rest.next
        return _once([*first.groups, *rest.groups, *self._swept(self._next(), whole=whole)])

    def _swept(self, page: GroupPage, *, whole: bool) -> Iterable[Group]:
        found = list(page.groups)
        self._after = page.next
        while whole and self._after:
            page = self._next()
            found += page.groups
            self._after = page.next
        for group in found:
            self._counting[group.domain, group.failure_class or ""] += group.open_entries
        if not self._after:
            self.counted = dict(self._counting)
        return found

    def _next(self) -> GroupPage:
        return self.groups.get_groups(limit=PAGE, after=self._after)


def _once(groups: Iterable[Group]) -> list[Group]:
    """Return each group once, as it was read last."""
    return list({group.fingerprint: group for group in groups}.values())
