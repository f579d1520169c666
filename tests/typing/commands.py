"""Uses of aggregates and commands as a type checker must accept them: read by mypy, never run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

from pydantic import BaseModel

from angzarr import Aggregate, Angzarr, applies, handles
from angzarr.aggregates import (
    Address,
    Command,
    Intent,
    MergeStrategy,
    aexecute_with_retry,
    execute_with_retry,
    merge_strategy,
)
from angzarr.aggregates.book import Book, Decision
from angzarr.aggregates.command import AsyncCommandClient, CommandClient

app = Angzarr("accounts")


class Deposit(BaseModel):
    cents: int


class Deposited(BaseModel):
    cents: int


@dataclass
class Funds:
    cents: int = 0


@app.aggregate("account", snapshot_every=100)
class Account(Aggregate[Funds]):
    state_version = 2

    @handles(Deposit)
    @merge_strategy(MergeStrategy.STRICT)
    def deposit(self, command: Deposit) -> Deposited:
        assert_type(self.state, Funds)
        assert_type(self.command, Command | None)
        return Deposited(cents=command.cents)

    @applies(Deposited)
    def deposited(self, event: Deposited) -> None:
        self.state.cents += event.cents

    @applies("account.closed")
    def closed(self, event: dict[str, str]) -> Funds:
        return Funds()


assert_type(Account.deposit(app.load(Account, "a-1"), Deposit(cents=1)), Deposited)
assert_type(app.load(Account, "a-1").state, Funds)


def build(intent: Intent, book: Book) -> Deposit:
    return Deposit(cents=Account(book).state.cents)


def build_whole(intent: Intent, book: Book) -> Command:
    return intent.command(Deposit(cents=1), expected=book.next_sequence)


def send() -> Decision:
    sent = app.send_command(Deposit(cents=1), domain="account", root="a-1", expected=3, id="c-1")
    assert_type(sent, Command)
    return app.execute(sent)


def insist(client: CommandClient) -> Decision:
    intent = Intent(address=Address("account", "a-1"), data={"cents": 1})
    assert_type(app.execute_with_retry(intent, build), Decision)
    assert_type(execute_with_retry(intent, build_whole, app.decider), Decision)
    return execute_with_retry(intent, build, client, dead_letter=app._commands.bury_command)


async def ainsist(client: AsyncCommandClient) -> Decision:
    return await aexecute_with_retry(Intent(address=Address("account", "a-1")), build, client)
