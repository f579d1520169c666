"""An SDK that is a process's own leaves its children alone."""

from __future__ import annotations

from angzarr.adapters.prometheus.folder import ProcessMeter


def test_a_fork_waits_for_no_pool_of_threads(monkeypatch):
    def fail(*_args):
        raise AssertionError("its lock may be the parent's")

    monkeypatch.setattr("opentelemetry.sdk.metrics._internal._get_process_dependent_resource", fail)
    ProcessMeter().provider._handle_fork()  # as the SDK's hook calls it in a child
