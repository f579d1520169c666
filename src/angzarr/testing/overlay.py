"""Overlay: settings put over those of an app, checked as those of a file are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BaseModel, TypeAdapter, ValidationError

from angzarr.errors import ConfigurationError
from angzarr.runtime.text import unknown
from angzarr.settings.dead_letters import SpoolSettings
from angzarr.settings.payloads import PayloadSettings
from angzarr.settings.settings import Settings

#: Where everything is that a test must not share; kept apart from what users may say.
_MEMORY: Final = "memory://"


def embedded(settings: Settings, broker: str, ledger: str) -> Settings:
    """Return *settings* with every server of theirs in this process; how things are done stays."""
    dlq = {
        "backend": "channel",
        "targets": None,
        "spool": SpoolSettings(),
        "payloads": PayloadSettings(),
    }
    return settings.model_copy(
        update={
            "store": _MEMORY,
            "books": _MEMORY,
            "ledger": ledger,
            "dlq": settings.dlq.model_copy(update=dlq),
            "facts": settings.facts.model_copy(update={"url": broker, "log": False}),
            "flow": settings.flow.model_copy(update={"store": None}),
            "ordering": settings.ordering.model_copy(update={"url": _MEMORY}),
            "analysis": settings.analysis.model_copy(
                update={"alerts": settings.analysis.alerts.model_copy(update={"enabled": False})}
            ),
            "saga_compensation": settings.saga_compensation.model_copy(
                update={"dead_letter_queue_url": None, "escalation_webhook_url": None}
            ),
        }
    )


def overlaid(settings: Settings, given: Mapping[str, Any]) -> Settings:
    """Return *settings* with *given* put over them; raises ConfigurationError naming the key."""
    update = {}
    for name, value in given.items():
        if name not in Settings.model_fields:
            raise ConfigurationError(unknown("setting", name, Settings.model_fields, "remove it"))
        try:
            update[name] = _checked(getattr(settings, name), name, value)
        except ValidationError as error:
            problems = error.errors(include_url=False, include_input=False)
            told = "; ".join(f"{_key(name, one['loc'])}: {one['msg']}" for one in problems)
            raise ConfigurationError(told) from None
    return settings.model_copy(update=update)


def _checked(before: Any, name: str, value: Any) -> Any:
    if isinstance(before, BaseModel) and isinstance(value, Mapping):
        return type(before).model_validate(_merged(before.model_dump(), value))
    field = Settings.model_fields[name]
    checks: Any = (field.annotation, *field.metadata)
    whole: Any = Annotated[checks] if field.metadata else field.annotation
    return TypeAdapter(whole).validate_python(value)


def _merged(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        if isinstance(value, Mapping) and isinstance(under, dict):
            merged[key] = _merged(under, value)
        else:
            merged[key] = value
    return merged


def _key(name: str, place: tuple[int | str, ...]) -> str:
    return ".".join([name, *map(str, place)])
