from __future__ import annotations

import pytest
from pydantic import BaseModel

from angzarr import Aggregate, Angzarr, CommandRejectedError, applies, handles
from angzarr.testing import given

app = Angzarr("decisions", broker="memory://", set_as_current=False)


class Open(BaseModel):
    owner: str


class Opened(BaseModel):
    owner: str


class Draw(BaseModel):
    amount: int


class Drawn(BaseModel):
    amount: int
    left: int


class Account(BaseModel):
    owner: str = ""
    left: int = 0


@app.aggregate("account")
class Accounts(Aggregate[Account]):
    @handles(Open)
    def open(self, command: Open) -> Opened | None:
        return None if self.state.owner else Opened(owner=command.owner)

    @handles(Draw)
    def draw(self, command: Draw) -> list[Drawn]:
        if not self.state.owner:
            raise CommandRejectedError("nobody's account")
        return [Drawn(amount=command.amount, left=self.state.left - command.amount)]

    @applies(Opened)
    def opened(self, event: Opened) -> None:
        self.state.owner, self.state.left = event.owner, 100

    @applies(Drawn)
    def drawn(self, event: Drawn) -> None:
        self.state.left = event.left


def test_a_command_leads_to_events():
    given(Accounts).when(Open(owner="ann")).then(Opened(owner="ann"))
    history = given(Accounts, Opened(owner="ann"), Drawn(amount=30, left=70))
    assert history.state == Account(owner="ann", left=70)
    history.when(Draw(amount=20)).then(Drawn(amount=20, left=50))


def test_a_command_may_lead_to_nothing():
    given(Accounts, Opened(owner="ann")).when(Open(owner="bob")).then()


def test_other_events_than_those_named_fail_and_both_are_shown():
    decided = given(Accounts, Opened(owner="ann")).when(Draw(amount=20))
    with pytest.raises(AssertionError) as raised:
        decided.then(Drawn(amount=20, left=70))
    assert str(raised.value) == (
        "Draw led to\n  Drawn {'amount': 20, 'left': 80}\n"
        "not to\n  Drawn {'amount': 20, 'left': 70}"
    )
    with pytest.raises(AssertionError, match="was not rejected, it led to"):
        decided.then_rejected()


def test_a_rejection_is_its_own_end_with_its_reason():
    decided = given(Accounts).when(Draw(amount=20))
    decided.then_rejected("nobody's")
    with pytest.raises(AssertionError, match="but not for 'too much': nobody's account"):
        decided.then_rejected("too much")
    with pytest.raises(AssertionError, match="Draw was rejected: nobody's account"):
        decided.then(Drawn(amount=20, left=80))


def test_a_bug_of_the_aggregate_is_no_rejection():
    with pytest.raises(Exception, match="handles no 'Drawn'"):
        given(Accounts).when(Drawn(amount=1, left=1))
