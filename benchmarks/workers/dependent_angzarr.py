"""Handlers that call a dependency behind a breaker that the fleet shares; all as by default."""

from __future__ import annotations

from workers.dependent import handle
from workers.numbered import Numbered, app, letters, send

__all__ = ["app", "send"]


@app.handler(Numbered, domain="order", breaker="dep", name="bench.dependent")
def dependent(event: Numbered) -> None:
    handle(event.number)


if __name__ == "__main__":
    print(*letters())
