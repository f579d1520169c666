"""What was never set, is set wrongly, or is not installed: nothing passes until a person acts."""

from __future__ import annotations

import configparser
import importlib
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from celery.exceptions import ImproperlyConfigured
from pydantic_settings import BaseSettings, SettingsConfigDict
from tools.corpus.cases import misconfigured, recent
from tools.corpus.events import OrderPlaced
from tools.corpus.scenario import ORDER, scenario

from angzarr.errors import ConfigurationError

SETTINGS = SimpleNamespace(currency="EUR")


class ShopSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="CORPUS_SHOP_")

    payment_key: str


@scenario(
    misconfigured("the variable is missing on the new hosts", handler_recent=recent(120, 60)),
    misconfigured("the variable is missing everywhere"),
    misconfigured(
        "one event met the one host without it", group_events=1, handler_recent=recent(9, 1)
    ),
)
def missing_variable(_order: OrderPlaced) -> str:
    return os.environ["CORPUS_PAYMENT_KEY"]


@scenario(misconfigured("the settings model finds no key in the environment"))
def missing_setting(_order: OrderPlaced) -> str:
    return ShopSettings().payment_key


@scenario(misconfigured("the settings have no such attribute in this deployment"))
def no_such_setting(_order: OrderPlaced) -> str:
    return SETTINGS.smtp_host


@scenario(misconfigured("the section is missing in the deployed file"))
def missing_section(_order: OrderPlaced) -> str:
    return configparser.ConfigParser().get("payments", "key")


@scenario(misconfigured("the option is missing in the deployed file"))
def missing_option(_order: OrderPlaced) -> str:
    parser = configparser.ConfigParser()
    parser.read_string("[payments]\nurl = x\n")
    return parser.get("payments", "key")


@scenario(misconfigured("the variable is set, and is no number"))
def variable_is_no_number(_order: OrderPlaced) -> int:
    os.environ["CORPUS_TIMEOUT"] = "30s"
    try:
        return int(os.environ["CORPUS_TIMEOUT"])
    finally:
        del os.environ["CORPUS_TIMEOUT"]


@scenario(misconfigured("the image was built without the package"))
def missing_package(_order: OrderPlaced) -> Any:
    return importlib.import_module("stripe_of_the_shop")


@scenario(misconfigured("the package is there in a version without this name"))
def missing_name(_order: OrderPlaced) -> Any:
    from json import JSONEncoderV2

    return JSONEncoderV2


@scenario(misconfigured("the mail template was not deployed"))
def missing_template(_order: OrderPlaced) -> str:
    return Path("/etc/shop/templates/confirmation.html").read_text()


@scenario(misconfigured("the app says itself that it is not configured"))
def says_so_itself(_order: OrderPlaced) -> None:
    raise ConfigurationError("set payments.key, or the variable SHOP_PAYMENT_KEY")


@scenario(misconfigured("a framework says that it is not configured"))
def framework_says_so(_order: OrderPlaced) -> None:
    raise ImproperlyConfigured("the result backend is not set")


@scenario(
    misconfigured(
        "a release without this handler is running: no worker knows the task",
        target_problem="no handler is registered as 'shop.settings.old_name'",
    ),
    damage=lambda body, headers: (body, {**headers, "task": "shop.settings.old_name"}),
    event=ORDER,
)
def unknown_task(_order: OrderPlaced) -> None: ...


@scenario(
    misconfigured(
        "the error would pass, but the queue it came from is in nobody's settings any more",
        target_problem="the app knows no queue 'orders-2025'",
        handler_recent=recent(12, 0),
    ),
)
def unknown_queue(_order: OrderPlaced) -> None:
    raise ConnectionResetError(104, "Connection reset by peer")
