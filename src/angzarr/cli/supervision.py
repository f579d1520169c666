"""What the commands that run several processes share: one supervisor, one port for all."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from angzarr.runtime.chance import chance
from angzarr.supervisor.pool_health import PoolHealth
from angzarr.supervisor.process_plan import ProcessPlan, SinglePlan
from angzarr.supervisor.supervisor import Supervisor


def supervise(
    module: str,
    order: dict[str, Any],
    processes: tuple[int, int],
    doors: ExitStack,
    single: SinglePlan | None = None,
) -> int:
    """Keep *processes*, so many at least and at most, of the fork server that *module* is.

    It is given *order*. Returns the exit code once all of them ended.
    """
    least, most = processes
    command = [sys.executable, "-m", module]
    health = PoolHealth()

    def begin_server(line: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 - our own module
            [*command, str(line), json.dumps(order)], pass_fds=(line,), stdin=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip

    def begin(hello: Mapping[str, Any]) -> ProcessPlan:
        patience = float(hello["stalled_after"])
        plan = ProcessPlan(least, most, patience, chance)
        health.watch(lambda: plan.wanted, patience)
        supervisor.start_words = {"metrics": _serve(hello["health"], health, doors)}
        return plan

    supervisor = Supervisor(begin, begin_server, health, single)
    return supervisor.run()


def _serve(settings: Mapping[str, Any], health: PoolHealth, doors: ExitStack) -> str | None:
    """Answer probes for all processes; return the folder where they leave their metrics."""
    if settings["port"] is None:
        return None
    from angzarr.settings.base import HealthSettings
    from angzarr.wiring.telemetry import METRICS, open_health

    METRICS.begin()
    doors.callback(METRICS.end)
    server = open_health(HealthSettings(**settings), health)
    assert server is not None  # noqa: S101 - there is a port
    server.start()
    doors.callback(server.end)
    return METRICS.folder()
