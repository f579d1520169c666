"""Counted: the scripts that a client of Redis runs."""

from __future__ import annotations


class Counted:
    """Counts from now on; `steps` has the first argument of each."""

    def __init__(self, client):
        self.steps = []
        self._run = client.run
        client.run = self.run

    @property
    def calls(self):
        return len(self.steps)

    def run(self, script, keys, step, *what):
        self.steps.append(step)
        return self._run(script, keys, step, *what)
