"""Classes: what is asked of any class that becomes handlers."""

from __future__ import annotations

from typing import Any

from angzarr.errors import ConfigurationError


def check_is(kind: type, base: type) -> None:
    """Raise ConfigurationError unless *kind* derives from *base*."""
    if not issubclass(kind, base):
        msg = f"{kind.__qualname__} is not a {base.__name__}: derive it from {base.__name__}"
        raise ConfigurationError(msg)


def give_name(kind: type, attribute: str, name: str) -> None:
    """Give *kind* its name, which stands in books and ids: it has one only."""
    known = vars(kind).get(attribute) or name
    if known != name:
        msg = (
            f"{kind.__qualname__} is registered as {known!r} and as {name!r}, and has one"
            f" {attribute}: derive a class for each"
        )
        raise ConfigurationError(msg)
    setattr(kind, attribute, name)


def called_directly(_data: Any) -> None:
    """Refuse: Celery's task of a class is run by a message."""
    msg = "this task runs in a worker, by a message: send the command or the event instead"
    raise ConfigurationError(msg)
