from __future__ import annotations

from importlib.metadata import version

import pytest
from harness.book import CHECKOUT
from harness.figure import NotMeasured
from peers.catalogue import CATALOGUE, OURS
from peers.peer import PEERS, RABBITMQ, REDIS, Peer


def absent(**changed):
    told = {
        "name": "absent", "distribution": "absent", "home": "build/never", "app": "absent",
        "commands": lambda n: [("absent",)] * n, "brokers": (REDIS,), "settings": "s",
        "killed": "k",
    }  # fmt: skip
    return Peer(**{**told, **changed})


@pytest.mark.parametrize("peer", CATALOGUE.values(), ids=CATALOGUE)
def test_every_peer_has_an_app_that_publishes_and_a_place_to_run(peer):
    text = (CHECKOUT / "benchmarks" / f"{peer.app.replace('.', '/')}.py").read_text()
    assert "def send(" in text
    assert set(peer.brokers) <= {REDIS, RABBITMQ}
    assert peer.settings
    assert peer.killed


@pytest.mark.parametrize("peer", CATALOGUE.values(), ids=CATALOGUE)
def test_more_processes_are_more_workers_or_said_to_the_command(peer):
    one, eight = peer.commands(1), peer.commands(8)
    assert len(eight) == len(one) * 8 or "8" in eight[0]


def test_every_pinned_peer_is_in_the_catalogue():
    home = CHECKOUT / "requirements"
    asked = (home / "peers.in").read_text() + (home / "peers-older.in").read_text()
    for peer in CATALOGUE.values():
        if peer.home.startswith(PEERS):
            assert f"\n{peer.distribution}" in f"\n{asked}"


def test_ours_is_the_row_of_processes_and_shows_its_guarantees():
    assert OURS.name == "angzarr processes"
    assert OURS.check is not absent().check


def test_what_is_not_installed_says_how_to_get_it():
    with pytest.raises(NotMeasured, match="make peers-env"):
        list(absent().command_lines(1))
    with pytest.raises(NotMeasured, match="make peers-env"):
        absent(home=".venv").version()


def test_what_is_installed_says_its_release():
    assert OURS.version()
    assert CATALOGUE["Celery solo"].version() == version("celery")
