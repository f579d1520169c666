"""Where configurations are: as configured, else where the claims are; refused where not shared."""

from __future__ import annotations

import pytest

from angzarr.adapters.memory.configuration import MemoryConfigurationStore
from angzarr.adapters.redis.configuration import RedisConfigurationStore
from angzarr.adapters.sql.configuration.store import SqlConfigurationStore
from angzarr.errors import ConfigurationError
from angzarr.settings.settings import load
from angzarr.wiring.configuration import configuration_url, open_configuration
from angzarr.wiring.startup_checks import check_configured

REDIS, AMQP, MEMORY = "redis://r/1", "amqp://a", "memory://"
POSTGRES = "postgresql+psycopg://p/d"


def url(broker, **said):
    return configuration_url(load(said, None), broker)


def test_they_are_where_the_claims_are_unless_a_setting_says_otherwise():
    assert url(REDIS) == REDIS
    assert url(AMQP) is None
    assert url(AMQP, store=POSTGRES) == POSTGRES
    assert url(MEMORY) == "sqlite:///angzarr.db"
    assert url(REDIS, configuration={"url": POSTGRES}) == POSTGRES


@pytest.mark.parametrize(
    ("broker", "said", "kind"),
    [
        (REDIS, {}, RedisConfigurationStore),
        (AMQP, {"store": POSTGRES}, SqlConfigurationStore),
        (MEMORY, {"store": "memory://"}, MemoryConfigurationStore),
    ],
)
def test_each_kind_of_store_opens_and_asks_nothing(broker, said, kind):
    store = open_configuration(load(said, None), broker)
    assert isinstance(store, kind)
    store.close()


def test_all_that_an_app_opens_in_memory_is_one():
    settings = load({"store": "memory://"}, None)
    assert open_configuration(settings, MEMORY) is open_configuration(settings, MEMORY)
    assert open_configuration(load({"store": "memory://"}, None), MEMORY) is not open_configuration(
        settings, MEMORY
    )


@pytest.mark.parametrize(
    ("broker", "configured", "told"),
    [
        (AMQP, None, r"set configuration\.url, e\.g\."),
        (AMQP, "memory://", r"memory keeps configurations for one host .*set configuration\.url"),
        (REDIS, "sqlite:///c.db", "sqlite keeps configurations for one host"),
        (REDIS, "mysql://h", r"configuration\.url mysql:… is unknown: use"),
    ],
)
def test_what_is_not_shared_or_unknown_is_refused(broker, configured, told):
    settings = load({"configuration": {"url": configured}}, None)
    with pytest.raises(ConfigurationError, match=told):
        open_configuration(settings, broker)


def test_a_worker_does_not_start_with_a_store_that_is_none():
    settings = load({"configuration": {"url": "mysql://h"}, "store": REDIS}, None)
    with pytest.raises(ConfigurationError, match=r"configuration\.url mysql"):
        check_configured(settings, MEMORY)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"pin_at_publish": {"BillingDue": ["a b"]}}, "'a b' is not the id of a configuration"),
        ({"current_for": -1}, "configuration.current_for"),
        ({"current_for": 301}, "configuration.current_for"),
        ({"cache": 10}, "configuration.cache"),
        ({"urls": "redis://h"}, 'did you mean "configuration.url"'),
    ],
)
def test_settings_that_cannot_be_are_one_sentence(said, told):
    with pytest.raises(ConfigurationError, match=told):
        load({"configuration": said}, None)
