"""Aggregates: commands against event books (spec C1 to C3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from angzarr.runtime.late_names import late_names

__all__ = [
    "Address",
    "Command",
    "Intent",
    "MergeStrategy",
    "aexecute_with_retry",
    "execute_with_retry",
    "merge_strategy",
]

if TYPE_CHECKING:
    from angzarr.aggregates.book import Address
    from angzarr.aggregates.command import (
        Command,
        Intent,
        MergeStrategy,
        aexecute_with_retry,
        execute_with_retry,
    )
    from angzarr.aggregates.decorators import merge_strategy
else:  # hidden from type checkers, which would take every name for granted
    __getattr__, __dir__ = late_names(
        __name__,
        {
            "angzarr.aggregates.book": ("Address",),
            "angzarr.aggregates.command": (
                "Command",
                "Intent",
                "MergeStrategy",
                "aexecute_with_retry",
                "execute_with_retry",
            ),
            "angzarr.aggregates.decorators": ("merge_strategy",),
        },
    )
