"""The dashboard as a process: where it listens, and how it ends."""

from __future__ import annotations

import os
import signal
import threading
import urllib.request

import pytest

from angzarr.dashboard.server import bind, check_binding, serve
from angzarr.errors import ConfigurationError
from angzarr.settings.dashboard import DashboardSettings
from dashboard_world import SETTINGS, World
from polling import wait_until

EVERYWHERE = "0.0.0.0"  # noqa: S104 - refused


@pytest.mark.parametrize("host", [EVERYWHERE, "::", "10.0.0.1", "dlq.example.com"])
def test_without_tokens_other_machines_are_not_served(host):
    with pytest.raises(ConfigurationError, match="angzarr dashboard token"):
        check_binding(DashboardSettings(hosts=("dlq.example.com",)), host)


def test_all_addresses_need_the_names_by_which_people_reach_it():
    with pytest.raises(ConfigurationError, match=r"dashboard\.hosts"):
        check_binding(SETTINGS, EVERYWHERE)
    check_binding(SETTINGS.model_copy(update={"hosts": ("dlq.example.com",)}), EVERYWHERE)
    check_binding(SETTINGS, "10.0.0.1")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_this_machine_is_served_without_tokens(host):
    check_binding(DashboardSettings(), host)


def test_an_address_that_is_taken_is_one_sentence():
    with (
        bind("127.0.0.1", 0) as taken,
        pytest.raises(ConfigurationError, match=r"cannot listen on 127\.0\.0\.1"),
    ):
        bind("127.0.0.1", taken.getsockname()[1])


def test_a_signal_ends_it_with_the_handlers_as_they_were(monkeypatch):
    """SIGTERM ends the server and not the process around it."""
    before = signal.getsignal(signal.SIGTERM)
    world = World()
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]

        def ask_and_stop():
            wait_until(lambda: answers(port))
            os.kill(os.getpid(), signal.SIGTERM)

        thread = threading.Thread(target=ask_and_stop)
        thread.start()
        serve(world.site, listener)
        thread.join(60)
    assert world.site.streams.ending
    assert signal.getsignal(signal.SIGTERM) is before


def answers(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=60) as answer:
            return answer.status == 200
    except OSError:
        return False
