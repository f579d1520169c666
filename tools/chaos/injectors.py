"""Injectors: do the faults of a plan to fleet and servers, and write down what they did when."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from chaos.disturbances import RETURN, SETTLE, Disturbance, Outage, What
from chaos.faults import GAP, Fault
from chaos.fleet import RECOVERED_AFTER, Fleet, Worker
from chaos.hardships import Birth, no_more_files, no_more_log, no_more_threads
from chaos.history import Reader, Run
from chaos.publisher import Publisher
from chaos.servers import Servers
from family import is_alive
from tcp_proxy import LossyProxy

#: Seconds that a fault waits for a worker that runs something.
BUSY = 2.0
#: Seconds after the end of the stream in which a fault may still last.
LATE = 3.0
#: Seconds that a pod has which is thrown out, less than a worker's grace.
EVICTED_AFTER = 1.0
#: Seconds after which a half-open connection is noticed on both sides: our clients' time-outs,
#: RabbitMQ's two heartbeats of 10 s, 25 s by whoever reads from it, 30 s by whoever publishes.
NOTICED = {"store": 10.0, "order": 10.0, "letters": 30.0, "tasks": 40.0}
#: Clocks that are wrong by hours, minutes and a year.
SKEWS = (Birth(clock=7200), Birth(clock=-600), Birth(clock=-31_536_000))


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

    def _victim(self, told: Injected, *, supervised: bool | None = None) -> Worker:
        """Return whom the fault is meant for, as soon as it runs something, or else another.

        A worker that is idle shows nothing. After `BUSY` seconds an idle one will do. *supervised*:
        only one that is `angzarr worker`, or only one that is not.
        """
        deadline = time.monotonic() + BUSY
        while True:
            busy = {run.worker for run in self.reader.runs() if _runs_now(run)}
            victims = self.fleet.victims(told.fault.target, supervised=supervised)
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
        for _ in range(2):  # what the first ones started before they were stopped, too
            victim.family.signal(signal.SIGSTOP)
        time.sleep(told.fault.seconds)
        victim.family.signal(signal.SIGCONT)
        told.over = time.monotonic()
        self._disturbed(told, What.FROZEN, victim, began)

    def freeze_parent(self, told: Injected) -> None:
        """Its children go on. In prefork nobody renews the lease that their claims hang on.

        Processes of `angzarr worker` have leases of their own: that their supervisor or their fork
        server is frozen excuses nothing.
        """
        victim = self._victim(told)
        above = [victim.process.pid, *victim.servers()]
        pid = above[told.fault.target % len(above)]
        began = time.monotonic()
        _send(pid, signal.SIGSTOP)
        time.sleep(told.fault.seconds)
        _send(pid, signal.SIGCONT)
        told.over, told.victim = time.monotonic(), victim.name
        if not victim.supervised:
            self._disturbed(told, What.FROZEN, victim, began)

    def freeze_child(self, told: Injected) -> None:
        """Freeze one process, for less than its lease."""
        self._freeze_one(told, self._victim(told), What.CHILD_FROZEN)

    def freeze_process(self, told: Injected) -> None:
        """Freeze a process that is a consumer of its own, beyond its lease."""
        self._freeze_one(told, self._victim(told, supervised=True), What.FROZEN)

    def _freeze_one(self, told: Injected, victim: Worker, what: What) -> None:
        pid = self._child_of(told, victim)
        began = time.monotonic()
        if not pid or not _send(pid, signal.SIGSTOP):
            told.note = "it had no child"
            return
        time.sleep(told.fault.seconds)
        _send(pid, signal.SIGCONT)
        told.over = time.monotonic()
        self._disturbed(told, what, victim, began, pid)

    def evict_worker(self, told: Injected) -> None:
        """What a node does to a pod that it throws out: SIGTERM, and no time."""
        victim = self._victim(told)
        began = time.monotonic()
        victim.ending = True
        victim.signal(signal.SIGTERM)
        time.sleep(EVICTED_AFTER)
        victim.kill()
        told.over = time.monotonic()
        self._disturbed(told, What.KILLED, victim, began)
        told.successor = self.fleet.replace(victim).name

    def no_files(self, told: Injected) -> None:
        """Its children have what they need: a handler that opens nothing writes no history."""
        victim = self._victim(told, supervised=False)
        with suppress(ProcessLookupError, FileNotFoundError), no_more_files(victim.process.pid):
            time.sleep(told.fault.seconds)
        told.victim = victim.name

    def fill_log(self, told: Injected) -> None:
        victim = self._victim(told)
        with suppress(ProcessLookupError), no_more_log(victim.process.pid):
            time.sleep(told.fault.seconds)
        told.victim = victim.name

    def no_threads(self, told: Injected) -> None:
        """Nor a process: a child dies meanwhile, and is not replaced."""
        victim = self._victim(told)
        with victim.in_need(), no_more_threads(victim.starved):
            pids, began = victim.pool(), time.monotonic()
            self._kill_one(told, victim)
            time.sleep(told.fault.seconds)
        told.over = time.monotonic()
        if victim.supervised:  # its supervisor replaces those that could not go on
            time.sleep(RECOVERED_AFTER)
            for pid in pids:
                if not is_alive(pid):
                    self._disturbed(told, What.KILLED, victim, began, pid)

    def _child_of(self, told: Injected, victim: Worker) -> int:
        """Return a pool process of *victim*, one that runs something if there is any, else 0."""
        pids = victim.pool()
        busy = [run.pid for run in self.reader.runs() if run.closed is None and run.pid in pids]
        told.note = "at work" if busy else "idle"
        return (busy or pids or [0])[-1]

    def kill_child(self, told: Injected) -> None:
        """Kill a pool process, one that runs something if there is any."""
        self._kill_one(told, self._victim(told))

    def _kill_one(self, told: Injected, victim: Worker) -> None:
        pid, began = self._child_of(told, victim), time.monotonic()
        told.victim = victim.name
        if not pid or not _send(pid, signal.SIGKILL):
            told.note = "it had no child"
            return
        told.over = time.monotonic()
        self._disturbed(told, What.KILLED, victim, began, pid)

    # -- what keeps the processes of a worker ------------------------------------------------------

    def kill_server(self, told: Injected) -> None:
        """Its processes stop in order; the supervisor begins another server beside them."""
        victim = self._victim(told, supervised=True)
        servers = victim.servers()
        if not servers or not _send(servers[-1], signal.SIGSTOP):  # it forks no more
            told.note = "it had no fork server"
            return
        pids, began = victim.family.children(servers[-1]), time.monotonic()
        _send(servers[-1], signal.SIGKILL)
        self._watch(told, victim, began, pids, What.STOPPED)

    def kill_supervisor(self, told: Injected) -> None:
        """All its processes stop in order; its successor starts beside them."""
        victim = self._victim(told, supervised=True)
        pids, began = victim.family.pids(), time.monotonic()
        victim.ending = True
        victim.signal(signal.SIGKILL)
        victim.process.wait()
        told.successor = self.fleet.replace(victim).name
        self._watch(told, victim, began, pids, What.STOPPED)

    def reload_worker(self, told: Injected) -> None:
        """SIGHUP: the app is loaded anew, and each process drains once a new one is ready."""
        victim = self._victim(told, supervised=True)
        pids, began = victim.pool(), time.monotonic()
        victim.signal(signal.SIGHUP)
        self._watch(told, victim, began, pids, What.DRAINED)

    def _watch(
        self, told: Injected, victim: Worker, began: float, pids: Sequence[int], what: What
    ) -> None:
        """Note what *pids* were, once all ended: their end *began* now. The lane goes on."""
        told.victim, told.over = victim.name, began

        def wait() -> None:
            in_order = self.fleet.wait_gone(victim, pids, f'"{told.fault.kind}"')
            told.over = time.monotonic()
            for pid in pids:
                self._disturbed(told, what, victim, began, pid)
                if not in_order:
                    self._disturbed(told, What.KILLED, victim, told.over, pid)

        self._threads.append(threading.Thread(target=wait, daemon=True))
        self._threads[-1].start()

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

    def fill_store(self, told: Injected) -> None:
        """Redis is full, and refuses what needs room; it throws nothing out."""
        began = time.monotonic()
        client = self.servers.client()
        client.config_set("maxmemory", 1)
        time.sleep(told.fault.seconds)
        client.config_set("maxmemory", 0)
        self._redis_was_away(told, began)

    def fill_broker(self, told: Injected) -> None:
        """RabbitMQ's disk is full, by what it thinks: it reads nothing from who publishes."""
        began = time.monotonic()
        self.servers.rabbit.command("set_disk_free_limit", "1000000GB")
        time.sleep(told.fault.seconds)
        self.servers.rabbit.command("set_disk_free_limit", "50MB")
        told.over = time.monotonic()
        self.outages.append(Outage(start=began, end=told.over + RETURN))

    def flood(self, told: Injected) -> None:
        told.note = f"{self.publisher.flood(told.fault.target)} duplicates"

    def _rabbit_was_away(self, told: Injected, began: float) -> None:
        """Its connections broke, of tasks and of letters."""
        self._broker_was_cut(told, began)
        self.outages.append(Outage(start=began, end=told.over))

    def _broker_was_cut(self, told: Injected, began: float) -> None:
        told.over = time.monotonic()
        if self.servers.broker == "rabbitmq":  # on SQS what runs goes on
            number, end = told.fault.number, told.over + SETTLE  # some notice when they come back
            what = What.CUT_OFF
            self.disturbances.append(Disturbance(fault=number, what=what, start=began, end=end))

    def _redis_was_away(self, told: Injected, began: float) -> None:
        told.over = time.monotonic()
        self.store_outages.append(Outage(start=began, end=told.over))


def _runs_now(run: Run) -> bool:
    """Tell whether *run* goes on; one that was cut short has no end either."""
    return run.closed is None and Path(f"/proc/{run.pid}").exists()


def _send(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def _born(*births: Birth) -> Callable[[Injector, Injected], None]:
    """Return what kills a worker whose successor is born into one of *births*."""

    def kill(self: Injector, told: Injected) -> None:
        birth = births[told.fault.target % len(births)]
        victim = self._victim(told)
        began = time.monotonic()
        victim.kill()
        told.over = time.monotonic()
        self._disturbed(told, What.KILLED, victim, began)
        told.successor = self.fleet.replace(victim, birth).name
        told.note = f"clock {birth.clock:+d} s" if birth.clock else "its log breaks"

    return kill


def _half_open(way: str) -> Callable[[Injector, Injected], None]:
    """Return what swallows all that is said on the connections of a way; new ones are well."""

    def swallow(self: Injector, told: Injected) -> None:
        proxy: LossyProxy = getattr(self.servers, way)
        began = time.monotonic()
        proxy.swallow()
        told.over = time.monotonic()
        noticed = told.over + NOTICED[way]
        if way == "store":
            self.store_outages.append(Outage(start=began, end=noticed))
            return
        in_part = way in {"letters", "order"}
        self.outages.append(Outage(start=began, end=noticed, in_part=in_part))
        if not in_part and self.servers.broker == "rabbitmq":
            number, what = told.fault.number, What.CUT_OFF
            disturbed = Disturbance(fault=number, what=what, start=began, end=noticed)
            self.disturbances.append(disturbed)

    return swallow


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
    "lose worker": Injector.freeze_worker,
    "freeze parent": Injector.freeze_parent,
    "freeze child": Injector.freeze_child,
    "freeze process": Injector.freeze_process,
    "kill server": Injector.kill_server,
    "kill supervisor": Injector.kill_supervisor,
    "reload worker": Injector.reload_worker,
    "evict worker": Injector.evict_worker,
    "skew worker": _born(*SKEWS),
    "break log": _born(Birth(mute=True)),
    "fill log": Injector.fill_log,
    "no files": Injector.no_files,
    "no threads": Injector.no_threads,
    "half-open store": _half_open("store"),
    "half-open letters": _half_open("letters"),
    "half-open order": _half_open("order"),
    "half-open broker": _half_open("tasks"),
    "fill store": Injector.fill_store,
    "fill broker": Injector.fill_broker,
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
