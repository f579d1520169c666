"""Resetting what takes events in order: its read model is emptied, its lanes begin anew (P4)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from angzarr.errors import AngzarrError, ConfigurationError, text_of
from angzarr.projections.projection import Projection, handler_name

_log: Final = logging.getLogger("angzarr.projections")


def reset_projection(app: Any, name: str, *, by: str = "") -> int:
    """Let the handler of task *name* begin anew; return how many lanes it had.

    Read model, checkpoint and lanes are cleared in one transaction; what is parked stays. Raises
    ConfigurationError for a projection that cannot empty its read model, and StoreUnavailable.
    """
    lanes: int = app.ordering.lanes.reset(name, _emptying(app, name))
    _log.warning("projection_reset: %s begins anew, of %d lanes, by %s", name, lanes, by or "?")
    return lanes


def _emptying(app: Any, name: str) -> Callable[[Any], object] | None:
    """Return what empties the read model of the projection with task *name*, if it is one."""
    for kind in app.projections.values():
        if handler_name(kind.name) == name:
            return partial(_empty, kind)
    return None


def _empty(kind: type[Projection], connection: Any) -> None:
    try:
        kind(connection).reset()
    except AngzarrError:
        raise
    except Exception as error:
        if getattr(error, "connection_invalidated", False):
            raise  # that is an outage
        said = text_of(error).partition("\n")[0]
        msg = f"the read model of {kind.name} cannot be emptied, and nothing is reset: {said}"
        raise ConfigurationError(msg) from error
