"""Handlers that take JSON of any kind; `routes` in the settings says which events they get."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from application import app
from outside import Busy, System, Unwanted

from angzarr import Context, Postpone, Skip

vault = System("vault")
search = System("search", says="busy")
chat = System("chat", says="unwanted")


@app.handler("anything", domain="anything")
def archive(body: dict[str, Any], ctx: Context) -> str:
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    vault.request(f"store {ctx.event.root or ctx.event.id}")
    return digest


@app.handler("anything", domain="anything", operation="external_api")
def index(body: dict[str, Any], ctx: Context) -> int:
    words = {word.lower() for text in _texts(body) for word in text.split()}
    try:
        search.request(f"index {ctx.event.root or ctx.event.id}")
    except Busy as answer:
        raise Postpone(0.4, str(answer)) from answer
    return len(words)


@app.handler("anything", domain="anything", operation="webhook")
async def tell(body: dict[str, Any], ctx: Context) -> str:
    who = body["sender"]["login"]  # a bug: not everything has a sender
    try:
        await chat.ask(f"tell {ctx.event.root or ctx.event.id}")
    except Unwanted as answer:
        raise Skip(str(answer)) from answer
    return f"{who}: {ctx.event.type}"


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)
