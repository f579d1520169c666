"""Clients of commands over gRPC, as a type checker must accept them: read by mypy, never run."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_type

from pydantic import BaseModel

from angzarr.adapters.grpc.commands import AsyncGrpcCommandClient, CommandServer, GrpcCommandClient
from angzarr.aggregates.book import Address, Book, Decision
from angzarr.aggregates.command import (
    AsyncCommandClient,
    CommandClient,
    Intent,
    aexecute_with_retry,
    execute_with_retry,
)


class Reserve(BaseModel):
    amount: int


SERVER = CommandServer("grpc://players:50051", deadline=timedelta(seconds=5))
CLIENT: CommandClient = GrpcCommandClient(SERVER)
TWIN: AsyncCommandClient = AsyncGrpcCommandClient(SERVER)


def reserve(intent: Intent, book: Book) -> Reserve:
    return Reserve(amount=book.next_sequence)


def ask() -> Decision:
    decided = execute_with_retry(Intent(address=Address("player", "p-1")), reserve, CLIENT)
    assert_type(decided, Decision)
    return decided


async def aask() -> Decision:
    return await aexecute_with_retry(Intent(address=Address("player", "p-1")), reserve, TWIN)
