"""Copy this folder beside your handlers, and put your app's name into pytest.ini."""

from __future__ import annotations

import pytest

pytest_plugins = ["angzarr.testing"]


class Outside:
    """What the systems outside were asked, and how they answer."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers: dict[str, list[Exception | None]] = {}

    def hear(self, system: str, request: str) -> None:
        """Note it; raise the next of the system's answers, the last one ever after."""
        self.asked.append(request)
        answers = self.answers.get(system, [None])
        if (answer := answers.pop(0) if len(answers) > 1 else answers[0]) is not None:
            raise answer


@pytest.fixture
def outside(monkeypatch):
    import orders

    heard = Outside()
    for name in ("warehouse", "payments", "crm", "mail"):
        play(monkeypatch, getattr(orders, name), heard)
    return heard


def play(monkeypatch, system, heard):
    def request(key):
        heard.hear(system.name, key)

    async def ask(key):
        heard.hear(system.name, key)

    monkeypatch.setattr(system, "request", request)
    monkeypatch.setattr(system, "ask", ask)
