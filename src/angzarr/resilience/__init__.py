"""Pure rules about failure, each with the port it needs beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from angzarr.runtime.late_names import late_names

__all__ = [
    "ExponentialBackoff",
    "Filtered",
    "Jitter",
    "NoRetry",
    "Verdict",
    "VerdictRule",
]

if TYPE_CHECKING:
    from angzarr.resilience.backoff import Jitter
    from angzarr.resilience.policies import ExponentialBackoff, Filtered, NoRetry
    from angzarr.resilience.taxonomy import Verdict, VerdictRule
else:  # hidden from type checkers, which would take every name for granted
    __getattr__, __dir__ = late_names(
        __name__,
        {
            "angzarr.resilience.backoff": ("Jitter",),
            "angzarr.resilience.policies": (
                "ExponentialBackoff",
                "Filtered",
                "NoRetry",
            ),
            "angzarr.resilience.taxonomy": (
                "Verdict",
                "VerdictRule",
            ),
        },
    )
