"""Settings: frozen, from code, YAML and the environment (weakest first), checked once at start."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml  # type: ignore[import-untyped]
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

from angzarr.errors import ConfigurationError
from angzarr.events.event import check_domain
from angzarr.resilience.breaker import BreakerSettings
from angzarr.resilience.guarded import check_name

T = TypeVar("T")

#: Names the file where none is named in code.
CONFIG_VARIABLE = "ANGZARR_CONFIG"
#: Variables that begin like settings and are none: the CLI's, the chart's and the tests' own.
_FOREIGN = ("ANGZARR_CONFIG", "ANGZARR_APP", "ANGZARR_RELEASE", "ANGZARR_TEST_", "ANGZARR_REQUIRE_")
#: Kubernetes puts such variables into every pod for each service of the namespace, so also for one
#: called angzarr-…; `compose.yaml` reads some of this form.
_SERVICE_LINK = re.compile(r"ANGZARR_(\w+_)?(SERVICE_HOST|(SERVICE_)?PORT(_\w+)?)")


def _seconds(given: Any) -> Any:
    """Read "30" from the environment as YAML's 30: seconds."""
    if not isinstance(given, str):
        return given
    try:
        return float(given)
    except ValueError:
        return given


#: Seconds, or an ISO 8601 duration.
Span = Annotated[timedelta, BeforeValidator(_seconds)]


def _said(check: Callable[[], T]) -> T:
    """Return what *check* does; pydantic wants a ValueError where it refuses."""
    try:
        return check()
    except ConfigurationError as error:
        raise ValueError(str(error)) from error


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DeadLetterSettings(_Section):
    """Where dead letters go (spec L5)."""

    backend: Literal["channel", "amqp", "kafka", "sqs", "none"] | None = None
    amqp_url: str | None = None
    kafka_brokers: str | None = None
    aws_region: str | None = None
    aws_endpoint_url: str | None = None
    #: Domains that the analysis worker reads besides those of the app's handlers.
    domains: tuple[str, ...] = ()
    #: The domain of a queue's letters where neither handler nor event names one.
    queue_domains: dict[str, str] = Field(default_factory=dict)
    accept_loss: bool = False

    @field_validator("domains")
    @classmethod
    def _domains(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_checked(name) for name in names)

    @field_validator("queue_domains")
    @classmethod
    def _queue_domains(cls, names: dict[str, str]) -> dict[str, str]:
        return {queue: _checked(name) for queue, name in names.items()}

    @model_validator(mode="after")
    def _complete(self) -> DeadLetterSettings:
        if self.backend == "none" and not self.accept_loss:
            msg = "backend 'none' loses every dead letter; say accept_loss: true if you mean it"
            raise ValueError(msg)
        needs = {"kafka": ("kafka_brokers", self.kafka_brokers)}
        name, value = needs.get(self.backend or "", ("", "present"))
        if not value:
            msg = f"backend {self.backend!r} needs {name}"
            raise ValueError(msg)
        return self


class FactSettings(_Section):
    """Where facts go besides the structured log (spec F1)."""

    url: str | None = None
    #: One INFO line a fact; by default only where no database takes them.
    log: bool | None = None


class AnalysisSettings(_Section):
    """How the DLQ-analysis worker replays (spec A4)."""

    max_replays: int = Field(default=3, ge=0)
    first_delay: Span = timedelta(seconds=30)
    longest_delay: Span = timedelta(hours=1)
    #: A replay that was not answered by then is held for a person.
    answer_deadline: Span = timedelta(hours=1)


class PoisonWaveSettings(_Section):
    """When a domain's events are held back instead of filling its dead-letter queue (27)."""

    enabled: bool = True
    #: Share of the events that ended within `window` that would be dead letters.
    share: float = Field(default=0.8, gt=0, le=1)
    #: Events that must have ended within `window` before it is judged, in each worker process.
    least: int = Field(default=50, ge=1)
    window: Span = Field(default=timedelta(minutes=1), gt=timedelta(0))
    #: How long a domain is held back before one event is tried.
    hold: Span = Field(default=timedelta(minutes=1), gt=timedelta(0))


class BreakerSection(_Section):
    """What is said of one breaker, or of all others as `default`; unsaid is as in D5."""

    window: Span | None = None
    min_calls: int | None = None
    failures_in_a_row: int | None = None
    failure_share: float | None = None
    slow_call: Span | None = None
    slow_share: float | None = None
    open_for: Span | None = None
    probes: int | None = None
    probe_lease: Span | None = None
    successes_to_close: int | None = None
    ramp_up: Span | None = None

    def over(self, below: BreakerSettings) -> BreakerSettings:
        """Return *below* with what is said here put over it."""
        return replace(below, **self.model_dump(exclude_none=True))


class FlowSettings(_Section):
    """Breakers, budgets and limits, and where the fleet shares them."""

    #: A Redis; by default the claim store, if that is one, else each process has its own.
    store: str | None = None
    breakers: dict[str, BreakerSection] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _breakers_work(self) -> FlowSettings:
        _said(lambda: [check_name(name) for name in self.breakers])
        _said(self.named_breakers)
        if self.store is not None and not self.store.startswith(("redis://", "rediss://")):
            msg = "store must be a Redis, redis://… or rediss://…"
            raise ValueError(msg)
        return self

    def default_breaker(self) -> BreakerSettings:
        """Return the settings of breakers that have none of their own."""
        given = self.breakers.get("default", BreakerSection())
        return given.over(BreakerSettings())

    def named_breakers(self) -> dict[str, BreakerSettings]:
        """Return the settings of those that have some, put over the default."""
        default = self.default_breaker()
        return {
            name: section.over(default)
            for name, section in self.breakers.items()
            if name != "default"
        }


class Route(_Section):
    """A handler of an event type that the publishing process does not import."""

    handler: str
    queue: str | None = None


class RetrySettings(_Section):
    """Named backoff policies, and the one that is used where none is named (spec D3)."""

    default: str = "default"
    policies: dict[str, dict[str, Any]] = Field(default_factory=dict)


class Settings(BaseSettings):
    """All settings of an app. Secrets stay in URLs, which are never printed whole."""

    model_config = SettingsConfigDict(
        env_prefix="ANGZARR_", env_nested_delimiter="__", extra="forbid", frozen=True
    )

    store: str | None = None
    ledger: str | None = None
    prefix: str = "angzarr"
    dlq: DeadLetterSettings = DeadLetterSettings()
    facts: FactSettings = FactSettings()
    retry: RetrySettings = RetrySettings()
    analysis: AnalysisSettings = AnalysisSettings()
    poison_wave: PoisonWaveSettings = PoisonWaveSettings()
    flow: FlowSettings = FlowSettings()
    routes: dict[str, tuple[Route, ...]] = Field(default_factory=dict)
    #: Whose transport a Redis broker gets: ours, or kombu's, which can lose and repeat messages.
    redis_transport: Literal["angzarr", "kombu"] = "angzarr"
    #: Whether queues are declared so that RabbitMQ drops nothing, or a policy of yours sees to it.
    amqp_queues: Literal["guarded", "plain"] = "guarded"
    #: Whose log lines a worker writes: ours (JSON, or coloured on a terminal) or Celery's own.
    logs: Literal["structured", "celery"] = "structured"
    #: Starts that nobody settled before an event counts as poison (spec D4).
    most_starts: int = Field(default=3, ge=1)

    @classmethod
    def settings_customise_sources(  # type: ignore[override]
        cls, settings_cls: type[BaseSettings], **sources: Any
    ) -> Any:
        """Let the environment win over what `load` read from code and file."""
        return EnvSettingsSource(settings_cls), sources["init_settings"]


def load(code: dict[str, Any], path: str | os.PathLike[str] | None = None) -> Settings:
    """Return the settings; raises ConfigurationError naming the key and the cure."""
    path = path or os.environ.get(CONFIG_VARIABLE)
    given = _merged({key: value for key, value in code.items() if value is not None}, _read(path))
    _check_environment()
    try:
        return Settings(**given)
    except ValidationError as error:
        raise ConfigurationError(_explain(error, path)) from None


def _read(path: str | os.PathLike[str] | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        read = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        msg = f"the config file {path} cannot be read: {error.strerror or error}"
        raise ConfigurationError(msg) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        where = getattr(error, "problem_mark", None)
        line = f" in line {where.line + 1}" if where is not None else ""
        msg = f"the config file {path} is not valid YAML{line}"
        raise ConfigurationError(msg) from error
    if read is None:
        return {}
    if not isinstance(read, dict):
        msg = f"the config file {path} must hold keys and values, like 'store: redis://…'"
        raise ConfigurationError(msg)
    return read


def _merged(weak: dict[str, Any], strong: dict[str, Any]) -> dict[str, Any]:
    merged = dict(weak)
    for key, value in strong.items():
        below = merged.get(key)
        if isinstance(value, dict) and isinstance(below, dict):
            merged[key] = _merged(below, value)
        else:
            merged[key] = value
    return merged


def _check_environment() -> None:
    """Refuse a misspelt variable, which pydantic-settings would ignore in silence."""
    known = {f"ANGZARR_{name.upper()}" for name in Settings.model_fields}
    for name in os.environ:
        if not name.startswith("ANGZARR_") or name.startswith(_FOREIGN):
            continue
        if _SERVICE_LINK.fullmatch(name):
            continue
        if name.split("__", 1)[0] not in known:
            listed = ", ".join(sorted(known))
            msg = f"the environment sets {name}, which is no setting; known: {listed}"
            raise ConfigurationError(msg)


def _explain(error: ValidationError, path: object) -> str:
    """Say what is wrong and where, without the values: they may hold passwords."""
    problems = []
    for problem in error.errors(include_url=False, include_input=False):
        key = ".".join(str(part) for part in problem["loc"]) or "the settings"
        if problem["type"] == "extra_forbidden":
            problems.append(f"{key} is no setting (is it misspelt?)")
        else:
            problems.append(f"{key}: {problem['msg'].removeprefix('Value error, ')}")
    source = f" (from {path} or the environment)" if path else ""
    return "; ".join(problems) + source


def _checked(name: str) -> str:
    return _said(lambda: check_domain(name))
