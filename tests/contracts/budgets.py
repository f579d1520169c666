"""What all retry budgets must do. Each adapter's tests subclass this, Redis on the real server."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from angzarr.resilience.budget import SHORTEST, Budgets, BudgetSettings, Spent

#: A window that tests on a real server can wait for.
SHORT = timedelta(seconds=1)

MakeBudgets = Callable[[BudgetSettings], Budgets]


def granted(budgets: Budgets, names: Iterable[str], times: int, mark: str = "") -> list[str]:
    """Ask *times* times, each time for another retry; return the tokens that were let through."""
    tokens = [f"{mark}{n}-{uuid.uuid4().hex}" for n in range(times)]
    return [token for token in tokens if budgets.retry(list(names), token) is None]


class BudgetsContract:
    """Subclasses give `make` (settings → budgets with no past), `settled` and `let_pass`."""

    @pytest.fixture
    def make(self) -> MakeBudgets:
        raise NotImplementedError

    @pytest.fixture
    def settled(self) -> Callable[[Budgets], None]:
        """Return once what was counted is known to everybody, and nobody trusts his memory."""
        raise NotImplementedError

    @pytest.fixture
    def let_pass(self) -> Callable[[timedelta], None]:
        raise NotImplementedError

    def test_without_first_attempts_there_are_a_few_retries(self, make):
        assert len(granted(make(BudgetSettings(least=3)), ["crm"], 10)) == 3

    def test_first_attempts_allow_their_share(self, make, settled):
        budgets = make(BudgetSettings(share=0.2, least=3))
        for _ in range(50):
            budgets.first(["crm"])
        settled(budgets)
        assert len(granted(budgets, ["crm"], 30)) == 3 + 10

    def test_a_part_of_a_retry_is_none(self, make, settled):
        budgets = make(BudgetSettings(share=0.3, least=1))
        for _ in range(9):  # 2.7
            budgets.first(["crm"])
        settled(budgets)
        assert len(granted(budgets, ["crm"], 10)) == 1 + 2

    def test_what_is_given_back_can_be_taken_again_at_once(self, make):
        budgets = make(BudgetSettings(share=0, least=2))
        for _ in range(20):
            (first, second) = granted(budgets, ["crm"], 2)
            budgets.returned(["crm"], first)
            budgets.returned(["crm"], second)

    def test_a_token_is_given_back_once(self, make, settled):
        budgets = make(BudgetSettings(share=0, least=2))
        first, _ = granted(budgets, ["crm"], 2)
        for _ in range(2):
            budgets.returned(["crm"], first)
        budgets.returned(["crm"], "never taken")
        assert len(granted(budgets, ["crm"], 5)) == 1

    def test_who_asks_twice_takes_one(self, make):
        budgets = make(BudgetSettings(share=0, least=2))
        assert [budgets.retry(["crm"], "mine") for _ in range(5)] == [None] * 5
        assert len(granted(budgets, ["crm"], 5)) == 1

    def test_a_budget_comes_back_with_its_window(self, make, let_pass):
        budgets = make(BudgetSettings(share=0, least=2, window=SHORT))
        assert len(granted(budgets, ["crm"], 5)) == 2
        let_pass(SHORT)
        assert len(granted(budgets, ["crm"], 5)) == 2

    def test_first_attempts_are_forgotten_with_their_window(self, make, settled, let_pass):
        budgets = make(BudgetSettings(share=1, least=1, window=SHORT))
        for _ in range(20):
            budgets.first(["crm"])
        settled(budgets)
        let_pass(SHORT)
        assert len(granted(budgets, ["crm"], 30)) == 1

    def test_of_several_budgets_all_give_or_none(self, make, settled):
        budgets = make(BudgetSettings(share=0, least=2))
        granted(budgets, ["mail"], 2)
        spent = budgets.retry(["crm", "mail"], "both")
        assert isinstance(spent, Spent)
        assert spent.name == "mail"
        assert len(granted(budgets, ["crm"], 5)) == 2

    def test_each_name_has_a_budget_of_its_own(self, make):
        budgets = make(BudgetSettings(share=0, least=2))
        assert [len(granted(budgets, [name], 5)) for name in ("crm", "mail")] == [2, 2]

    def test_a_budget_that_is_turned_off_lets_everything_through(self, make):
        assert len(granted(make(BudgetSettings(least=1, enabled=False)), ["crm"], 50)) == 50

    def test_those_who_wait_come_back_one_after_the_other(self, make, settled):
        settings = BudgetSettings(share=0, least=6, window=timedelta(minutes=1))
        budgets = make(settings)
        granted(budgets, ["crm"], 6)
        waits = []
        for n in range(3):
            spent = budgets.retry(["crm"], f"late {n}")
            waits.append(spent.wait.by(0.0).total_seconds())
        steps = [waits[0] - SHORTEST.total_seconds(), waits[1] - waits[0], waits[2] - waits[1]]
        assert steps == pytest.approx([0, 10, 10], abs=0.5)

    def test_nobody_waits_longer_than_half_the_window(self, make):
        settings = BudgetSettings(share=0, least=6, window=timedelta(minutes=1))
        budgets = make(settings)
        granted(budgets, ["crm"], 6)
        spent = [budgets.retry(["crm"], f"late {n}") for n in range(100)]
        assert max(one.wait.by(1.0) for one in spent) <= settings.window / 2
        last = spent[-1].wait
        assert (last.by(0.0), last.by(1.0)) == (settings.window / 4, settings.window / 2)

    def test_threads_take_no_more_than_there_is(self, make):
        budgets = make(BudgetSettings(share=0, least=25))
        with ThreadPoolExecutor(16) as pool:
            taken = pool.map(lambda n: granted(budgets, ["crm"], 20, f"{n}-"), range(16))
            assert sum(len(tokens) for tokens in taken) == 25
