from __future__ import annotations

import sys
from datetime import timedelta

import grpc
import pytest

from angzarr.adapters.grpc.commands import CommandServer
from angzarr.errors import ConfigurationError, MissingExtra


@pytest.mark.parametrize(
    ("url", "target", "encrypted"),
    [
        ("grpc://players:50051", "players:50051", False),
        ("grpcs://players.example:443", "players.example:443", True),
        ("grpcs://[::1]:50051", "[::1]:50051", True),
    ],
)
def test_a_url_says_where_and_whether_it_is_encrypted(url, target, encrypted):
    server = CommandServer(url)
    assert server.target == target
    assert (server.tls() is not None) is encrypted


@pytest.mark.parametrize(
    "url",
    [
        "players:50051",
        "http://players:50051",
        "grpc://players",
        "grpc://:50051",
        "grpc://players:0",
        "grpc://players:99999",
        "grpc://players:port",
        "grpc://players:1/",
        "grpc://players:1?key=hunter2",
        "grpc://players:1#hunter2",
        "grpc://user:hunter2@players:1",
        "grpc://[::1:50051",
        "",
    ],
)
def test_a_url_that_says_less_or_more_is_refused_and_not_shown(url):
    with pytest.raises(ConfigurationError, match="grpc://host:port") as raised:
        CommandServer(url)
    assert "hunter2" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_credentials_are_not_taken_where_nothing_is_encrypted():
    with pytest.raises(ConfigurationError, match="grpcs://"):
        CommandServer("grpc://players:1", credentials=grpc.ssl_channel_credentials())


def test_the_credentials_that_are_given_are_used():
    given = grpc.ssl_channel_credentials()
    assert CommandServer("grpcs://players:1", credentials=given).tls() is given


@pytest.mark.parametrize(
    "fields",
    [
        {"execute": "Execute"},
        {"execute": "/a/b/c"},
        {"get_event_book": "/Commands/"},
        {"deadline": timedelta(0)},
        {"max_message": 0},
        {"max_metadata": 2**31},
    ],
)
def test_what_cannot_work_is_refused(fields):
    with pytest.raises(ConfigurationError):
        CommandServer("grpc://players:1", **fields)


def test_grpc_tries_nothing_again_itself_and_all_is_bounded():
    options = dict(CommandServer("grpc://players:1", max_message=7, max_metadata=5).options())
    assert options["grpc.enable_retries"] == 0
    assert options["grpc.max_send_message_length"] == 7
    assert options["grpc.max_receive_message_length"] == 7
    assert options["grpc.max_metadata_size"] == 5
    assert options["grpc.absolute_max_metadata_size"] == 5
    assert options["grpc.keepalive_permit_without_calls"] == 0


def test_a_missing_grpcio_says_what_to_install(monkeypatch):
    for module in [name for name in sys.modules if name.startswith("angzarr.adapters.grpc")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(MissingExtra, match=r"^grpcio is .*pip install 'angzarr-workers\[grpc\]'$"):
        __import__("angzarr.adapters.grpc.commands")
