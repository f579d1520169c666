"""Hooks: they see everything in order, decide nothing, and cannot fail a delivery."""

from __future__ import annotations

import logging
from contextlib import contextmanager

import pytest

from angzarr.delivery.delivery import Handled
from angzarr.delivery.invoke import Hooks


class Watcher:
    def __init__(self, name, seen, breaks=""):
        self.name, self.seen, self.breaks = name, seen, breaks

    @contextmanager
    def _open(self):
        self._see("open")
        yield
        self._see("close")

    def attempt(self, _delivery):
        self._see("attempt")
        return self._open()

    def settled(self, _delivery, outcome):
        self._see(outcome)

    def _see(self, what):
        self.seen.append((self.name, what))
        if what == self.breaks or (self.breaks == "settled" and isinstance(what, Handled)):
            raise RuntimeError("a broken hook")


def test_contexts_open_in_order_and_close_in_reverse():
    seen = []
    with Hooks([Watcher("a", seen), Watcher("b", seen)]).attempt(None):
        seen.append("handler")
    assert seen == [
        ("a", "attempt"), ("a", "open"), ("b", "attempt"), ("b", "open"), "handler",
        ("b", "close"), ("a", "close"),
    ]  # fmt: skip


@pytest.mark.parametrize("breaks", ["attempt", "open", "close", "settled"])
def test_a_broken_hook_is_logged_and_neither_stops_the_handler_nor_the_others(breaks, caplog):
    seen, outcome = [], Handled(value=1)
    hooks = Hooks([Watcher("a", seen, breaks), Watcher("b", seen)])
    with hooks.attempt(None):
        seen.append("handler")
    hooks.settled(None, outcome)
    assert "handler" in seen
    assert [one[1] for one in seen if one[0] == "b"] == ["attempt", "open", "close", outcome]
    assert [record.message for record in caplog.records] == ["hook_failed"]
    assert caplog.records[0].levelno == logging.ERROR


def test_a_handlers_error_passes_through_and_contexts_are_closed():
    seen = []
    with pytest.raises(ValueError, match="mine"), Hooks([Watcher("a", seen)]).attempt(None):
        raise ValueError("mine")
    assert seen[-1] == ("a", "close")


def test_the_end_of_the_process_is_not_swallowed():
    class Ends:
        def attempt(self, _delivery):
            raise KeyboardInterrupt

        def settled(self, _delivery, _outcome):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Hooks([Ends()]).settled(None, Handled())


def test_a_hook_sees_an_outcome_once_it_is_true(world):
    seen = []

    class Late(Watcher):
        def settled(self, delivery, outcome):
            assert not world.store.owns(delivery.key, delivery.token)
            super().settled(delivery, outcome)

    world.hooks = Hooks([Late("a", seen)])
    world.handler(lambda _data, _context: 1)
    world.take()
    assert [what for _, what in seen] == ["attempt", "open", "close", Handled(value=1, result="1")]
