"""Random histories on a claim store give the answers that the memory store gives."""

from __future__ import annotations

import uuid
from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from angzarr.adapters.memory.idempotency import MemoryIdempotencyStore, MemoryOwnerLeases
from angzarr.facts.outbox import FactOutbox
from angzarr.resilience.idempotency import (
    Claim,
    Complete,
    Fail,
    IdempotencyStore,
    OwnerLeases,
    Position,
    Release,
    Wait,
)
from contracts.histories import run_histories

LONG = timedelta(hours=1)

keys = st.sampled_from(["k1", "k2"])
tokens = st.sampled_from(["t1", "t2", "t3", "t4"])
owners = st.sampled_from(["o1", "o2"])
positions = st.builds(Position, st.integers(0, 2), st.integers(0, 3))
claims = st.builds(
    Claim,
    key=keys,
    token=tokens,
    owner=owners,
    position=positions,
    fingerprint=st.sampled_from(["", "", "x", "y"]),
    counted=st.booleans(),
)
facts = st.lists(st.sampled_from("abc"), max_size=2)
texts = st.sampled_from(["{}", '{"a": 1}', "ü"])
endings = st.one_of(
    st.builds(Complete, result=st.none() | texts),
    st.builds(Fail, error=texts),
    st.builds(Wait, position=positions),
    st.builds(
        Release,
        counted=st.booleans(),
        was_counted=st.booleans(),
        last_words=st.sampled_from(["", '["SystemExit", ""]']),
    ),
)


def compare_with_memory(
    store: IdempotencyStore,
    leases: OwnerLeases,
    *,
    outbox: FactOutbox | None = None,
    histories: int = 60,
    steps: int = 25,
) -> None:
    """Run random histories on *store* and on the memory store, side by side.

    The facts that *store* puts in *outbox* are compared too; without one it is given none.
    """

    class Histories(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.name = uuid.uuid4().hex
            self.model_leases = MemoryOwnerLeases()
            self.model = MemoryIdempotencyStore(self.model_leases)

        def mine(self, text: str) -> str:
            return f"{self.name}-{text}"

        def lines(self, facts: list[str]) -> list[str]:
            return [] if outbox is None else [self.mine(fact) for fact in facts]

        @rule(batch=st.lists(claims, min_size=1, max_size=3))
        def claim(self, batch: list[Claim]) -> None:
            named = [
                Claim(
                    key=self.mine(claim.key),
                    token=claim.token,
                    owner=self.mine(claim.owner),
                    position=claim.position,
                    fingerprint=claim.fingerprint,
                    counted=claim.counted,
                )
                for claim in batch
            ]
            # One by one: stores may order the claims of one batch by key.
            assert [store.claim([one]) for one in named] == [
                self.model.claim([one]) for one in named
            ]

        @rule(key=keys, token=tokens, ending=endings, facts=facts)
        def settle(self, key, token, ending, facts) -> None:
            end = (self.mine(key), token, ending, self.lines(facts))
            assert store.settle(*end) == self.model.settle(*end)

        @rule(key=keys, token=tokens, facts=facts)
        def owns(self, key, token, facts) -> None:
            asked = (self.mine(key), token, self.lines(facts))
            assert store.owns(*asked) == self.model.owns(*asked)

        @rule(owner=owners)
        def renew(self, owner) -> None:
            leases.renew(self.mine(owner), LONG)
            self.model_leases.renew(self.mine(owner), LONG)

        @rule(owner=owners)
        def end(self, owner) -> None:
            leases.end(self.mine(owner))
            self.model_leases.end(self.mine(owner))

        def teardown(self) -> None:
            if outbox is None:
                return
            ours = [one for one in outbox.read(10_000) if one.text.startswith(self.name)]
            outbox.remove([one.place for one in ours])
            kept = [one.text for one in self.model.outbox.read(10_000)]
            assert [one.text for one in ours] == kept

    run_histories(Histories, histories, steps)
