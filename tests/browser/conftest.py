"""Chromium before a dashboard that runs in a thread of the test, on a port of its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from angzarr.clock import SystemClock
from angzarr.dashboard.server import bind, server_of
from angzarr.settings.dashboard import Role
from dashboard_world import TOKENS, World
from polling import wait_until


@pytest.fixture(scope="module")
def chromium(chromium_path) -> Iterator:
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path, args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def world() -> World:
    return World(clock=SystemClock())


@pytest.fixture
def address(world) -> Iterator[str]:
    """Where the dashboard of this test answers."""
    server = server_of(world.site)
    with bind("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            wait_until(lambda: server.started)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            world.site.streams.ending = True
            server.should_exit = True
            thread.join(60)
    assert not thread.is_alive()


class Visit:
    """A page in a browser of its own, and whatever it complained of or asked elsewhere for."""

    def __init__(self, context, address) -> None:
        self.page = context.new_page()
        self.page.set_default_timeout(60_000)
        self.complaints: list[str] = []
        self.address = address
        self.page.on("console", lambda said: self.complaints.append(said.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._note)

    def _note(self, request) -> None:
        if not request.url.startswith(self.address):
            self.complaints.append(f"asked for {request.url}")

    def go(self, path):
        return self.page.goto(self.address + path)

    def login(self, role=Role.OPERATOR):
        self.go("/login")
        self.page.get_by_label("Token").fill(TOKENS[role])
        self.page.get_by_role("button", name="Log in").click()
        self.page.wait_for_url("**/groups")
        return self.page


@pytest.fixture
def open_visit(chromium, address):
    """Open a page with any options of a browser; none may complain before the test ends."""
    contexts, visits = [], []

    def open_(**options):
        contexts.append(chromium.new_context(**options))
        visits.append(Visit(contexts[-1], address))
        return visits[-1]

    yield open_
    for context in contexts:
        context.close()
    assert [one for visit in visits for one in visit.complaints] == []


@pytest.fixture
def visit(open_visit):
    return open_visit()
