"""Settings: frozen, from code, YAML and the environment (weakest first), checked once at start."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from angzarr.errors import ConfigurationError
from angzarr.runtime.text import unknown
from angzarr.runtime.yaml import read_yaml
from angzarr.settings.analysis import AnalysisSettings
from angzarr.settings.base import DatabaseUrl, HealthSettings, Span, kept
from angzarr.settings.configuration import ConfigurationSettings
from angzarr.settings.costs import CostSettings
from angzarr.settings.dashboard import DashboardSettings
from angzarr.settings.dead_letters import DeadLetterSettings
from angzarr.settings.delivery import (
    FactSettings,
    FlowSettings,
    MessageSettings,
    OrderingSettings,
    PoisonWaveSettings,
    RetrySettings,
    Route,
    checked_routes,
)
from angzarr.settings.payloads import MessagePayloadSettings, with_store_of_letters
from angzarr.settings.sagas import SECTION as SAGA
from angzarr.settings.sagas import VARIABLES, SagaCompensationSettings, with_short

#: Names the file where none is named in code.
CONFIG_VARIABLE = "ANGZARR_CONFIG"
#: What names begin with where an app says nothing; such apps must not share a broker.
DEFAULT_PREFIX = "angzarr"
#: Variables that begin like settings and are none: the CLI's, the chart's and the tests' own.
_FOREIGN = ("ANGZARR_CONFIG", "ANGZARR_APP", "ANGZARR_RELEASE", "ANGZARR_TEST_", "ANGZARR_REQUIRE_")
#: Kubernetes puts such variables into every pod for each service of the namespace, so also for one
#: called angzarr-…; `compose.yaml` reads some of this form.
_SERVICE_LINK = re.compile(r"ANGZARR_(\w+_)?(SERVICE_HOST|(SERVICE_)?PORT(_\w+)?)")

#: A week at least, in which what came once may come again by itself, or for ever.
KeepBooks = Annotated[Annotated[Span, Field(ge=timedelta(days=7))] | None, BeforeValidator(kept)]


class Settings(BaseSettings):
    """All settings of an app. Secrets stay in URLs, which are never printed whole."""

    model_config = SettingsConfigDict(
        env_prefix="ANGZARR_",
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )

    store: str | None = Field(default=None, repr=False)
    ledger: DatabaseUrl | None = Field(default=None, repr=False)
    #: Migrate the ledger schema automatically.
    ledger_migrate: bool = True
    #: A database for the event books of aggregates and process managers.
    books: DatabaseUrl | None = Field(default=None, repr=False)
    ordering: OrderingSettings = OrderingSettings()
    configuration: ConfigurationSettings = ConfigurationSettings()
    #: Migrate the schema of event books automatically.
    books_migrate: bool = True
    #: How long it is known what was decided of a cause, and what became of a rejected command that
    #: needs no action; None: for ever. As long as archived letters, by default.
    books_keep_decisions: KeepBooks = Field(default=timedelta(days=180))
    books_keep_rejections: KeepBooks = Field(default=timedelta(days=180))
    prefix: str = DEFAULT_PREFIX
    dlq: DeadLetterSettings = DeadLetterSettings()
    facts: FactSettings = FactSettings()
    costs: CostSettings = CostSettings()
    retry: RetrySettings = RetrySettings()
    analysis: AnalysisSettings = AnalysisSettings()
    dashboard: DashboardSettings = DashboardSettings()
    message: MessageSettings = MessageSettings()
    #: Where bodies go that are too large for the broker; nowhere without a URL.
    payloads: MessagePayloadSettings = MessagePayloadSettings()
    poison_wave: PoisonWaveSettings = PoisonWaveSettings()
    flow: FlowSettings = FlowSettings()
    saga_compensation: SagaCompensationSettings = SagaCompensationSettings()
    health: HealthSettings = HealthSettings()
    #: How long what runs may go on once a worker is told to stop; none: as Celery's setting
    #: ``worker_soft_shutdown_timeout`` says.
    soft_shutdown_timeout: Span | None = Field(
        default=None, ge=timedelta(0), le=timedelta(hours=12)
    )
    #: By event type, or ``order/*`` for all events of the domain order.
    routes: Annotated[dict[str, tuple[Route, ...]], AfterValidator(checked_routes)] = Field(
        default_factory=dict
    )
    #: Whose transport a Redis broker gets: ours, or kombu's, which can lose and repeat messages.
    redis_transport: Literal["angzarr", "kombu"] = "angzarr"
    #: Whether queues are declared so that RabbitMQ drops nothing, or a policy of yours sees to it.
    amqp_queues: Literal["guarded", "plain"] = "guarded"
    #: Whose log lines a worker writes: ours (JSON, or coloured on a terminal) or Celery's own.
    logs: Literal["structured", "celery"] = "structured"
    #: Unsettled starts before an event counts as poison (spec D4).
    most_starts: int = Field(default=3, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _share_payload_store(cls, given: Any) -> Any:
        return with_store_of_letters(given)

    @classmethod
    def settings_customise_sources(  # type: ignore[override]
        cls, settings_cls: type[BaseSettings], **sources: Any
    ) -> Any:
        """Let the environment win over what `load` read from code and file."""
        return _Environment(settings_cls), sources["init_settings"]


#: Their names.
SETTINGS: Final = frozenset(Settings.model_fields)


class _Environment(EnvSettingsSource):
    """The environment, with the shorter variables that a section has besides the usual ones."""

    def __call__(self) -> dict[str, Any]:
        """The settings of the environment; raises ConfigurationError where two differ."""
        said = super().__call__()
        usual = said.get(SAGA, {})
        if isinstance(usual, dict) and (merged := with_short(usual, os.environ)):
            said[SAGA] = merged
        return said


#: What pydantic says in the words of Python, as people who write YAML understand it.
_PLAIN: Final = {
    "missing": "is missing: set it",
    "model_type": "is a section: write its settings below it, as name: value",
    "dict_type": "is a mapping: write name: value below it",
    "list_type": "is a list: write [one, another]",
    "tuple_type": "is a list: write [one, another]",
    "string_type": "is one text, no list and no number: write it in quotes",
    "int_type": "is a whole number: write it in digits, such as 100",
    "int_parsing": "is a whole number: write it in digits, such as 100",
    "int_from_float": "is a whole number: write it in digits, such as 100",
    "float_type": "is a number: write it in digits, such as 1.5",
    "float_parsing": "is a number: write it in digits, such as 1.5",
    "bool_type": "is true or false",
    "bool_parsing": "is true or false",
    "time_delta_type": "is a span: write seconds such as 30, or an ISO 8601 duration like PT30S",
    "time_delta_parsing": "is a span: write seconds such as 30, or an ISO 8601 duration like PT30S",
}


def load(code: dict[str, Any], path: str | os.PathLike[str] | None = None) -> Settings:
    """The settings; raises ConfigurationError naming the key and the cure."""
    path = path or os.environ.get(CONFIG_VARIABLE)
    given = _merged(
        {key: _plain(value) for key, value in code.items() if value is not None}, _read(path)
    )
    _check_environment()
    try:
        return Settings(**given)
    except ValidationError as error:
        raise ConfigurationError(_explain(error, path)) from None
    except SettingsError:  # its cause shows the value, which may be a key
        msg = (
            f"{_unreadable_variable()} in the environment is not JSON: lists and objects are"
            """ written as JSON there, e.g. ANGZARR_DLQ__REDACT='["**.password"]'"""
        )
        raise ConfigurationError(msg) from None


def _plain(value: Any) -> Any:
    """A mapping as a dict, which a file can be put over."""
    return dict(value) if isinstance(value, Mapping) else value


def _read(path: str | os.PathLike[str] | None) -> dict[str, Any]:
    if path is None:
        return {}
    read = read_yaml(Path(path), f"the config file {path}")
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
        if name not in VARIABLES and name.split("__", 1)[0] not in known:
            all_known = sorted(known | set(VARIABLES))
            listed = f"known are {', '.join(all_known)}"
            told = unknown("variable", name, all_known, listed)
            msg = told if told.endswith(listed) else f"{told} ({listed})"
            raise ConfigurationError(msg)


def _unreadable_variable() -> str:
    """The variable that cannot be read, without its value; each is read alone."""
    for name in os.environ:
        alone = EnvSettingsSource(Settings)
        alone.env_vars = {name.lower(): os.environ[name]}
        try:
            alone()
        except SettingsError:
            return name
    return "a variable"


def _explain(error: ValidationError, path: object) -> str:
    """Say what is wrong and where, without the values: they may hold passwords."""
    problems = []
    found = error.errors(include_url=False, include_input=False)
    for problem in found:
        if _follows(problem, found) or _is_said_of_payloads(problem, found):
            continue
        key = ".".join(str(part) for part in problem["loc"]) or "the settings"
        if problem["type"] == "extra_forbidden":
            problems.append(_unknown(problem["loc"]))
        else:
            said = _PLAIN.get(problem["type"]) or problem["msg"].removeprefix("Value error, ")
            problems.append(f"{key}: {said}")
    source = f" (from {path} or the environment)" if path else ""
    return "; ".join(problems) + source


def _is_said_of_payloads(problem: ErrorDetails, found: Sequence[ErrorDetails]) -> bool:
    """True if letters only use what `payloads` says, where the same is wrong."""
    above, *place = problem["loc"] or ("",)
    return above == "dlq" and any(
        one["loc"] == tuple(place) and one["msg"] == problem["msg"] for one in found
    )


def _unknown(place: tuple[int | str, ...]) -> str:
    """The sentence about a key that no section has, with the nearest that it has."""
    *above, name = (str(part) for part in place)
    prefix = "".join(f"{part}." for part in above)
    return unknown("setting", name, _section(above).model_fields, "remove it", within=prefix)


def _section(keys: Sequence[str]) -> type[BaseModel]:
    """The section that *keys* lead to; those of a mapping or a list lead no further."""
    section: type[BaseModel] = Settings
    for key in keys:
        if key in section.model_fields:
            section = next(_sections(section.model_fields[key].annotation), section)
    return section


def _sections(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _sections(part)


def _follows(problem: ErrorDetails, found: Sequence[ErrorDetails]) -> bool:
    """True if a list is only too short because what stands in it was refused."""
    inside = len(problem["loc"])
    return problem["type"] == "too_short" and any(
        len(one["loc"]) > inside and one["loc"][:inside] == problem["loc"] for one in found
    )
