"""Injectors: do the faults of a plan to fleet and servers, and write down what they did when."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from adapters.tcp_proxy import LossyProxy
from chaos.disturbances import RETURN, SETTLE, Disturbance, Outage, What
from chaos.faults import GAP, Fault
from chaos.fleet import Fleet, Worker
from chaos.history import Reader, Run
from chaos.publisher import Publisher
from chaos.servers import Servers, children_of

#: Seconds that a fault waits for a worker that runs something.
BUSY = 2.0
#: Seconds after the end of the stream in which a fault may still last.
LATE = 3.0


@dataclass(slots=True, kw_only=True)
class Injected:
    """A fault as it was: to whom, from when to when, and who took the victim's place."""

    fault: Fault
    began: float
    over: float = 0.0
    victim: str = ""
    successor: str = ""
    note: str = ""


@dataclass(slots=True, kw_only=True)
class Injector:
    """Does faults, one lane beside the other; `done` and `disturbances` tell of them."""

    fleet: Fleet
    servers: Servers
    publisher: Publisher
    reader: Reader
    done: list[Injected] = field(default_factory=list)
    disturbances: list[Disturbance] = field(default_factory=list)
    #: Of the claim store, and of broker or dead-letter queue.
    store_outages: list[Outage] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    #: Faults that came too late, since those before them took longer than planned.
    left_out: int = 0
    #: Seconds that each worker took which was stopped in order.
    stops: list[float] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self, plan: Sequence[Fault], seconds: float) -> None:
        """Begin to do *plan*; what could not begin within *seconds* is left out."""
        began = time.monotonic()
        for lane in sorted({fault.lane for fault in plan}):
            mine = [fault for fault in plan if fault.lane == lane]
            thread = threading.Thread(target=self._lane, args=(mine, began, seconds), daemon=True)
            thread.start()
            self._threads.append(thread)

    def finish(self) -> None:
        """Wait until every fault is over; raises what broke an injector."""
        while self._threads:
            self._threads.pop().join()
        if self.errors:
            raise self.errors[0]

    @property
    def span(self) -> tuple[float, float] | None:
        """From the first fault until the last was over and noticed; None without any."""
        if not self.done:
            return None
        return min(one.began for one in self.done), max(one.over for one in self.done) + RETURN

    def _lane(self, faults: Sequence[Fault], began: float, seconds: float) -> None:
        try:
            for fault in faults:
                time.sleep(max(GAP[0], began + fault.at - time.monotonic()))
                if time.monotonic() + fault.seconds > began + seconds + LATE:
                    self.left_out += 1
                    continue
                self._do(fault)
        except BaseException as error:
            self.errors.append(error)

    def _do(self, fault: Fault) -> None:
        told = Injected(fault=fault, began=time.monotonic())
        _DO[fault.kind](self, told)
        told.over = told.over or time.monotonic()
        self.done.append(told)

    # -- workers -----------------------------------------------------------------------------------

    def _victim(self, told: Injected, pool: str = "") -> Worker:
        """Return whom the fault is meant for, as soon as it runs something, or else another.

        A worker that is idle shows nothing. After `BUSY` seconds an idle one will do.
        """
        deadline = time.monotonic() + BUSY
        while True:
            busy = {run.worker for run in self.reader.runs() if _runs_now(run)}
            victims = self.fleet.victims(told.fault.target, pool)
            late = time.monotonic() > deadline
            for victim in victims:
                if victim.name in busy or late:
                    told.note = "at work" if victim.name in busy else "idle"
                    told.began = time.monotonic()
                    return victim
                if time.monotonic() < deadline - BUSY / 2:
                    break  # wait for the one that is meant
            time.sleep(0.05)

    def kill_worker(self, told: Injected) -> None:
        victim = self._victim(told)
        began = time.monotonic()
        victim.kill()
        told.over = time.monotonic()
        self._disturbed(told, What.KILLED, victim, began)
        told.successor = self.fleet.replace(victim).name

    def stop_worker(self, told: Injected) -> None:
        """A rolling update: its successor starts while it ends."""
        victim = self._victim(told)
        began = time.monotonic()
        victim.ending = True
        victim.signal(signal.SIGTERM)
        told.successor = self.fleet.replace(victim).name
        told.over = began  # until it is known when it was; the lane goes on meanwhile
        waiting = threading.Thread(target=self._wait_end, args=(told, victim, began), daemon=True)
        waiting.start()
        self._threads.append(waiting)

    def _wait_end(self, told: Injected, victim: Worker, began: float) -> None:
        in_order = self.fleet.wait_end(victim)
        told.over = time.monotonic()
        self.stops.append(told.over - began)
        self._disturbed(told, What.STOPPED, victim, began)
        if not in_order:
            self._disturbed(told, What.KILLED, victim, told.over)

    def freeze_worker(self, told: Injected) -> None:
        victim = self._victim(told)
        began = time.monotonic()
        victim.signal(signal.SIGSTOP, group=True)
        time.sleep(told.fault.seconds)
        victim.signal(signal.SIGCONT, group=True)
        told.over = time.monotonic()
        self._disturbed(told, What.FROZEN, victim, began)

    def kill_child(self, told: Injected) -> None:
        """Kill a pool process, one that runs something if there is any."""
        victim = self._victim(told, "prefork")
        pids = children_of(victim.process.pid)
        if not pids:
            told.note = "it had no child"
            return
        busy = [run.pid for run in self.reader.runs() if run.closed is None and run.pid in pids]
        pid = (busy or pids)[-1]
        began = time.monotonic()
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            told.note = "gone already"
            return
        told.over = time.monotonic()
        told.note = "at work" if busy else "idle"
        self._disturbed(told, What.KILLED, victim, began, pid)

    def kill_analyst(self, told: Injected) -> None:
        victim = self.fleet.workers["analyst"]
        victim.kill()
        told.over = time.monotonic()
        told.victim, told.successor = victim.name, self.fleet.replace(victim).name

    def _disturbed(
        self, told: Injected, what: What, victim: Worker, start: float, pid: int = 0
    ) -> None:
        told.victim = victim.name
        self.disturbances.append(
            Disturbance(
                fault=told.fault.number,
                what=what,
                start=start,
                end=told.over,
                worker=victim.name,
                pid=pid,
            )
        )

    # -- servers -----------------------------------------------------------------------------------

    def restart_broker(self, told: Injected) -> None:
        if self.servers.broker == "redis":
            self.restart_store(told)
            return
        began = time.monotonic()
        self.servers.rabbit.kill()
        time.sleep(told.fault.seconds)
        self.servers.rabbit.start()
        self._rabbit_was_away(told, began)

    def restart_store(self, told: Injected) -> None:
        began = time.monotonic()
        self.servers.redis.kill()
        time.sleep(told.fault.seconds)
        self.servers.redis.start()
        self._redis_was_away(told, began)

    def restart_order(self, told: Injected) -> None:
        began = time.monotonic()
        self.servers.postgresql.kill()
        time.sleep(told.fault.seconds)
        self.servers.postgresql.start()
        told.over = time.monotonic()
        self.outages.append(Outage(start=began, end=told.over, in_part=True))

    def client_pause(self, told: Injected) -> None:
        began = time.monotonic()
        client = self.servers.client()
        client.client_pause(round(told.fault.seconds * 1000), all=True)
        time.sleep(told.fault.seconds)
        self._redis_was_away(told, began)

    def flood(self, told: Injected) -> None:
        told.note = f"{self.publisher.flood(told.fault.target)} duplicates"

    def _rabbit_was_away(self, told: Injected, began: float) -> None:
        """Its connections broke, of tasks and of letters."""
        self._broker_was_cut(told, began)
        self.outages.append(Outage(start=began, end=told.over))

    def _broker_was_cut(self, told: Injected, began: float) -> None:
        told.over = time.monotonic()
        if self.servers.broker != "redis":
            number, end = told.fault.number, told.over + SETTLE  # some notice when they come back
            what = What.CUT_OFF
            self.disturbances.append(Disturbance(fault=number, what=what, start=began, end=end))

    def _redis_was_away(self, told: Injected, began: float) -> None:
        told.over = time.monotonic()
        self.store_outages.append(Outage(start=began, end=told.over))


def _runs_now(run: Run) -> bool:
    """Tell whether *run* goes on; one that was cut short has no end either."""
    return run.closed is None and Path(f"/proc/{run.pid}").exists()


def _cut(way: str) -> Callable[[Injector, Injected], None]:
    """Return what cuts every connection of a way, and each new one, for a while."""
    return lambda self, told: _block(self, told, way, LossyProxy.cut, LossyProxy.mend)


def _pause(way: str) -> Callable[[Injector, Injected], None]:
    """Return what lets nothing through on a way for a while; connections stay open."""
    return lambda self, told: _block(self, told, way, LossyProxy.stall, LossyProxy.mend)


def _block(
    injector: Injector,
    told: Injected,
    way: str,
    close: Callable[[LossyProxy], None],
    open_: Callable[[LossyProxy], None],
) -> None:
    proxy: LossyProxy = getattr(injector.servers, way)
    began = time.monotonic()
    close(proxy)
    time.sleep(told.fault.seconds)
    open_(proxy)
    told.over = time.monotonic()
    if way == "store":
        injector._redis_was_away(told, began)
        return
    in_part = way in {"letters", "order"}
    injector.outages.append(Outage(start=began, end=told.over, in_part=in_part))
    if close is LossyProxy.cut and not in_part:
        injector._broker_was_cut(told, began)


_DO: dict[str, Callable[[Injector, Injected], None]] = {
    "kill worker": Injector.kill_worker,
    "stop worker": Injector.stop_worker,
    "kill child": Injector.kill_child,
    "freeze worker": Injector.freeze_worker,
    "restart broker": Injector.restart_broker,
    "restart store": Injector.restart_store,
    "cut broker": _cut("tasks"),
    "cut store": _cut("store"),
    "cut letters": _cut("letters"),
    "restart order": Injector.restart_order,
    "cut order": _cut("order"),
    "pause order": _pause("order"),
    "pause broker": _pause("tasks"),
    "pause store": _pause("store"),
    "pause letters": _pause("letters"),
    "client pause": Injector.client_pause,
    "kill analyst": Injector.kill_analyst,
    "flood": Injector.flood,
    "store away": _cut("store"),
    "letters away": _cut("letters"),
    "broker away": _cut("tasks"),
}
