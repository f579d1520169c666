"""Which ANGZARR_ variables are settings, as the settings themselves say."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cache

from pydantic import BaseModel

from angzarr.settings.settings import Settings

#: Read by the app or the command line, not by the settings; see docs/reference/configuration.md.
_OTHERS = {"ANGZARR_APP", "ANGZARR_CONFIG", "ANGZARR_RELEASE"}


@cache
def known_variables() -> set[str]:
    """Return every variable that begins with ANGZARR_ and is not refused as misspelt."""
    return _OTHERS | {"ANGZARR_" + "__".join(path).upper() for path in _paths(Settings)}


def _paths(model: type[BaseModel], parents: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        if inspect.isclass(kind) and issubclass(kind, BaseModel):
            yield from _paths(kind, (*parents, name))
        else:
            yield (*parents, name)
