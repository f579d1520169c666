"""From settings to the store of configurations, and to what a process reads them by."""

from __future__ import annotations

import importlib
import weakref
from typing import Final

from angzarr.clock import SystemClock
from angzarr.configuration.editor import ConfigurationEditor, SchemaChecker
from angzarr.configuration.reader import ConfigurationReader
from angzarr.configuration.version import ConfigurationStore
from angzarr.errors import ConfigurationError
from angzarr.settings.settings import Settings
from angzarr.wiring.context import AppContext
from angzarr.wiring.stores import adapter, check_shared, extra, redis_adapter, store_url

_MEMORY: Final = "memory://"
#: Those in memory, by the identity of their settings: all that an app opens are the same.
_IN_MEMORY: Final[dict[int, ConfigurationStore]] = {}


def configuration_url(settings: Settings, broker: str) -> str | None:
    """The URL of the configurations: as configured, or that of the claims; None: nowhere."""
    if settings.configuration.url:
        return settings.configuration.url
    try:
        return store_url(settings, broker)
    except ConfigurationError:
        return None


def check_configuration(settings: Settings, broker: str) -> str:
    """The URL of the configurations; raises ConfigurationError where not all share them."""
    url = configuration_url(settings, broker)
    if url is None:
        msg = (
            "no store of configurations is configured: set configuration.url, e.g. configuration:"
            " {url: postgresql+psycopg://localhost/angzarr} or ANGZARR_CONFIGURATION__URL"
        )
        raise ConfigurationError(msg)
    check_shared(url, broker, "configurations", "configuration.url")
    return url


def open_configuration(settings: Settings, broker: str) -> ConfigurationStore:
    """The store of configurations that *settings* name; connects when first used.

    To be closed. Raises ConfigurationError, MissingExtra.
    """
    url = check_configuration(settings, broker)
    scheme = url.split(":", 1)[0]
    if scheme == "memory":
        return _in_memory(settings)
    store: ConfigurationStore
    if scheme in {"redis", "rediss"}:
        client = redis_adapter("angzarr.adapters.redis.link").RedisClient(url)
        redis = redis_adapter("angzarr.adapters.redis.configuration")
        store = redis.RedisConfigurationStore(client, prefix=settings.prefix)
        return store
    if scheme.startswith(("sqlite", "postgresql")):
        engines = importlib.import_module("angzarr.adapters.sql.engine.engine").ENGINES
        sql = importlib.import_module("angzarr.adapters.sql.configuration.store")
        with extra("psycopg"):
            lent = engines.borrow(url)
        migrate = settings.configuration.migrate
        store = sql.SqlConfigurationStore(lent.engine, close=lent.close, migrate=migrate)
        return store
    msg = (
        f"configuration.url {scheme}:… is unknown: use postgresql+psycopg://, redis:// or"
        " sqlite:///"
    )
    raise ConfigurationError(msg)


def editor_of(store: ConfigurationStore) -> ConfigurationEditor:
    """What people change *store* by."""
    return ConfigurationEditor(store=store, checker=open_checker, clock=SystemClock())


def open_checker() -> SchemaChecker:
    """What checks values against JSON schemas; raises MissingExtra."""
    module = adapter("angzarr.adapters.jsonschema.checker", "jsonschema")
    checker: SchemaChecker = module.JsonSchemaChecker()
    return checker


def open_reader(context: AppContext) -> ConfigurationReader:
    """What one process reads by; raises what `open_configuration` does."""
    given = context.settings.configuration
    return ConfigurationReader(
        open_configuration(context.settings, context.broker_url),
        SystemClock(),
        cached=given.cache,
        current_for=given.current_for,
    )


def _in_memory(settings: Settings) -> ConfigurationStore:
    key = id(settings)
    if key not in _IN_MEMORY:
        memory = importlib.import_module("angzarr.adapters.memory.configuration")
        weakref.finalize(settings, _IN_MEMORY.pop, key, None)
        _IN_MEMORY[key] = memory.MemoryConfigurationStore()
    return _IN_MEMORY[key]
