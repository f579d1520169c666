"""What a host lacks or forbids: programs, libraries, variables, folders, keys."""

from __future__ import annotations

import ctypes
import importlib
import json
import logging.config
import os
import ssl
import subprocess
from pathlib import Path
from typing import Any

import yaml
from pydantic_settings import BaseSettings
from tools.corpus.cases import corrupt, misconfigured, other, unseen
from tools.corpus.events import OrderPlaced
from tools.corpus.places import folders, talk, web
from tools.corpus.scenario import ORDER, scenario

from angzarr.analysis.ledger.entry import FailureClass


@scenario(misconfigured("the library that draws is not in the image"))
def no_library(_order: OrderPlaced) -> None:
    ctypes.CDLL("libpicture.so.7")


@scenario(misconfigured("a plug-in that our settings name is not installed"))
def no_plugin(_order: OrderPlaced) -> None:
    importlib.import_module("shop_plugins.campaign")


@scenario(misconfigured("a setting that must be there is missing"))
def settings_missing(_order: OrderPlaced) -> None:
    class MailSettings(BaseSettings):
        mail_host_of_shop: str

    MailSettings()


@scenario(misconfigured("the settings of the log name a file that is none"))
def log_settings(_order: OrderPlaced) -> None:
    handler = {"class": "logging.FileHandler", "filename": "/srv/none/shop.log"}
    logging.config.dictConfig({"version": 1, "handlers": {"file": handler}})


@scenario(misconfigured("the certificate of our own is not where our settings say"))
def no_certificate(_order: OrderPlaced) -> None:
    ssl.create_default_context().load_cert_chain("/etc/shop/client.pem")


@scenario(misconfigured("what our settings call our certificate is none"))
def broken_certificate(_order: OrderPlaced) -> None:
    file = folders.fresh() / "client.pem"
    file.write_text("no certificate")
    ssl.create_default_context().load_cert_chain(file)


@scenario(misconfigured("the secret was mounted as an empty file, and JSON is due"))
def empty_secret(_order: OrderPlaced) -> Any:
    file = folders.fresh() / "secret.json"
    file.write_text("")
    return json.loads(file.read_text())


@scenario(misconfigured("the settings were edited by hand, and a bracket is missing"))
def settings_no_yaml(_order: OrderPlaced) -> Any:
    return yaml.safe_load("payments: {key: 1")


@scenario(misconfigured("nobody may write to the folder that our settings name"))
def read_only_folder(_order: OrderPlaced) -> None:
    Path("/proc/shop").mkdir()


@scenario(misconfigured("the program needs a library that is not there"))
def program_fails(_order: OrderPlaced) -> None:
    subprocess.run(["/bin/sh", "-c", "exit 127"], check=True, capture_output=True)


@scenario(misconfigured("the port that our settings name is another program's"))
def address_in_use(_order: OrderPlaced) -> None:
    import socket

    with socket.socket() as first, socket.socket() as second:
        first.bind((web.LOOPBACK, 0))
        first.listen()
        second.bind(first.getsockname())


@scenario(unseen("the folder for files that go is full, on every host"))
def folder_full(_order: OrderPlaced) -> None:
    with Path("/dev/full").open("wb", buffering=0) as file:
        file.write(b"x")


@scenario(corrupt("the name of one customer's file is longer than names may be"),
          event={**ORDER, "sku": "x" * 300})  # fmt: skip
def name_too_long(order: OrderPlaced) -> None:
    (folders.fresh() / order.sku).write_text("x")


@scenario(misconfigured("a variable of the environment holds a word where a number is due"))
def variable_no_number(_order: OrderPlaced) -> int:
    os.environ["SHOP_RETRIES"] = "three"
    return int(os.environ["SHOP_RETRIES"])


@scenario(misconfigured("the other side wants a certificate of ours, and we have none"))
def speaks_plain(_order: OrderPlaced) -> None:
    import socket

    port = talk.saying("220 no TLS here", shown=8449)
    with socket.create_connection((web.LOOPBACK, port), timeout=30) as line:
        ssl.create_default_context().wrap_socket(line, server_hostname="erp.example")


@scenario(other(FailureClass.POISON, "its picture needs more memory than there is"))
def too_large_picture(_order: OrderPlaced) -> Any:
    return bytearray(1 << 60)
