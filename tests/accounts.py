"""An aggregate for tests: an account, whose balance must never go below zero."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import uuid4

from pydantic import BaseModel

from angzarr.aggregates.aggregate import Aggregate, AggregateType
from angzarr.aggregates.book import Address, Book, Snapshot, numbered
from angzarr.aggregates.command import Command, MergeStrategy, Origin
from angzarr.aggregates.decorators import applies, handles, merge_strategy
from angzarr.errors import CommandRejectedError
from angzarr.events.event import Event


class Deposit(BaseModel):
    cents: int


class Withdraw(BaseModel):
    cents: int


class Deposited(BaseModel):
    cents: int


class Withdrawn(BaseModel):
    cents: int


@dataclass
class Funds:
    cents: int = 0
    moves: list[int] = field(default_factory=list)


class Account(Aggregate[Funds]):
    domain = "account"

    @handles(Deposit)
    def deposit(self, command):
        return Deposited(cents=command.cents)

    @handles(Withdraw)
    def withdraw(self, command):
        if command.cents > self.state.cents:
            raise CommandRejectedError(f"only {self.state.cents} are left")
        return [Withdrawn(cents=command.cents)]

    @applies(Deposited)
    def deposited(self, event):
        self.state.cents += event.cents
        self.state.moves.append(event.cents)

    @applies(Withdrawn)
    def withdrawn(self, event):
        moves = [*self.state.moves, -event.cents]
        return Funds(self.state.cents - event.cents, moves)


def merging(strategy: MergeStrategy, every: int = 0) -> AggregateType:
    """Return accounts whose commands have *strategy*; a snapshot *every* so many events."""

    class Merging(Account):
        snapshot_every = every

        @handles(Deposit)
        @merge_strategy(strategy)
        def deposit(self, command):
            return super().deposit(command)

        @handles(Withdraw)
        @merge_strategy(strategy)
        def withdraw(self, command):
            return super().withdraw(command)

    return Merging


ADDRESS = Address("account", "a-1")


def event(of: BaseModel) -> Event:
    return Event(id="e", type=type(of).__name__, data=of.model_dump(mode="json"))


def book_of(*events: Event, snapshot: Snapshot | None = None) -> Book:
    pages = numbered(events, ADDRESS, 0)
    return Book(address=ADDRESS, events=pages, snapshot=snapshot, next_sequence=len(pages))


def new_address() -> Address:
    return Address("account", str(uuid4()))


def command(
    address: Address,
    payload: BaseModel,
    expected: int | None = None,
    *,
    id: str | None = None,
    origin: Origin | None = None,
    merge: MergeStrategy | None = None,
    **fields: object,
) -> Command:
    event = Event(
        id=id or str(uuid4()),
        type=type(payload).__name__,
        data=payload.model_dump(mode="json"),
        domain=address.domain,
        root=address.root,
        edition=address.edition or None,
        sequence=expected,
        **fields,
    )
    return Command(event=event, origin=origin, merge=merge)
