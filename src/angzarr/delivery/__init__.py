"""One delivery in, one outcome out, made true before its message is acknowledged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from angzarr.runtime.late_names import late_names

__all__ = ["Batch", "BatchContext", "BatchResult"]

if TYPE_CHECKING:
    from angzarr.delivery.batch import Batch, BatchContext, BatchResult
else:  # hidden from type checkers, which would take every name for granted
    __getattr__, __dir__ = late_names(
        __name__, {"angzarr.delivery.batch": ("Batch", "BatchContext", "BatchResult")}
    )
