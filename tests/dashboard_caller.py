"""A caller of the dashboard without a server: each request goes straight to the application."""

from __future__ import annotations

import asyncio
import re
from html import unescape

import httpx

from angzarr.settings.dashboard import Role
from dashboard_world import TOKENS, World

HOST = "http://testserver"


class Client:
    """Asks *app*; keeps cookies like a browser."""

    def __init__(self, app, **headers) -> None:
        self.app = app
        self.headers = headers
        self.cookies = httpx.Cookies()

    def ask(self, method, path, **options):
        async def send():
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(
                transport=transport, base_url=HOST, headers=self.headers, cookies=self.cookies
            ) as client:
                answer = await client.request(method, path, **options)
                self.cookies = client.cookies
                return answer

        return asyncio.run(send())

    def get(self, path, **options):
        return self.ask("GET", path, **options)

    def post(self, path, **options):
        return self.ask("POST", path, **options)

    def submit(self, page, where, **fields):
        """Send a form as the page *page* holds it, with all that it hides."""
        return self.post(where, data=hidden(self.get(page).text) | fields)


def api(world: World, role: Role | None = Role.OPERATOR, **headers) -> Client:
    """A program with a token of *role*."""
    shown = {"X-API-Key": TOKENS[role]} if role else {}
    return Client(world.app, **shown, **headers)


def browser(world: World, role: Role = Role.OPERATOR) -> Client:
    """A person who logged in."""
    client = Client(world.app)
    client.submit("/login", "/login", token=TOKENS[role], next="/")
    return client


def opened(world: World, **headers) -> Client:
    """A person who followed the link that a dashboard without tokens printed at its start."""
    client = Client(world.app, **headers)
    client.get(f"/login?token={world.site.token}")
    return client


def form_token(html):
    return hidden(html)["form_token"]


def hidden(html):
    """What the forms of a page hold that nobody types."""
    fields = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', html)
    return {name: unescape(value) for name, value in fields}


def as_seen(client, path, body):
    """Return *body* with what its dry run tells."""
    told = client.post(path, json=body | {"dry_run": True}).json()
    return body | {"seen": told["seen"]}


def problem(answer):
    """The name of the problem that *answer* is."""
    assert answer.headers["content-type"] == "application/problem+json"
    told = answer.json()
    assert told["status"] == answer.status_code
    assert told["detail"]
    return told["type"].removeprefix("urn:angzarr:problem:")
