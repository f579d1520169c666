"""Section: the part of docs/benchmarks.md on peers, and its plots, from what the book keeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness import plot
from harness.report import number

from peers.catalogue import CATALOGUE
from peers.peer import RABBITMQ, REDIS

#: What the book keeps: broker, workload, what was found.
Found = Mapping[str, Mapping[str, Any]]

BROKERS = {REDIS: "Redis", RABBITMQ: "RabbitMQ"}
#: Columns of the table: heading, workload, and what of it.
COLUMNS = (
    ("no-op /s", "noop", "rate"),
    ("5 ms I/O /s", "io", "rate"),
    ("5 ms CPU /s", "cpu", "rate"),
    ("1 % fail /s", "fails_1", "rate"),
    ("20 % fail /s", "fails_20", "rate"),
    ("CPU ms each", "noop", "cpu_ms"),
    ("PSS MiB", "noop", "pss_mib"),
    ("RSS MiB", "noop", "rss_mib"),
    ("p50 ms", "latency", "p50_ms"),
    ("p99 ms", "latency", "p99_ms"),
    ("missing", "kill", "missing"),
)
#: What grows: workload, and how its axis is called.
GROWTH = {"processes": "worker processes", "backlog": "events queued before a worker starts"}

RATE = "events per second"

_HEAD = """\
## Peers

`make bench-peers` runs other task queues and ours at the same work, in turn, on a fresh broker each
time. The queue is filled first, then the workers start; the rate is that of the handlers' starts
over the middle 98 %. Every handler stamps its start in a mapped file, and a run is over when every
event has a stamp: the same means for all, whatever a peer counts itself. CPU is the processor time
of all worker processes for one event, from a tenth of the events to the end, start-up left out.
Memory is that of all worker processes when the queue is empty; PSS counts a shared page once. An
event that fails raises when it runs first, and each peer's own retry runs it again, as soon as that
can. The latency is from the call that publishes an event to the start of its handler, workers warm
and otherwise idle; a peer that cannot keep up with the rate shows how long its queue becomes.
Missing are the events that are not done a minute and a half after all workers were killed amid
20 ms of I/O each and replaced; some peers bring them back later, as the first table says. A rate
with * is that of a peer that was not through after a minute."""


def render(found: Found) -> str:
    """The section: what each peer is and promises, and what was measured, if anything was."""
    parts = [_HEAD, "\n".join(_settings(found))]
    for broker, name in BROKERS.items():
        if workloads := found.get(broker):
            parts += [f"### On {name}", *_measured(broker, workloads)]
    return "\n\n".join(parts)


def draw(found: Found) -> None:
    """Write the plots that the section shows."""
    for broker, workloads in found.items():
        title = f"No-op on {BROKERS[broker]}"
        if "noop" in workloads:
            rates = {name: row["rate"] for name, row in _sound(workloads["noop"]["rows"]).items()}
            plot.draw_bars(
                {"file": _file(broker, "noop"), "title": title, "x": RATE, "values": rates}
            )
        for key, axis in GROWTH.items():
            if key in workloads:
                rows = _sound(workloads[key]["rows"])
                curves = {
                    name: {float(size): row[size] for size in _sizes(row)}
                    for name, row in rows.items()
                }
                plot.draw_curves(
                    {"file": _file(broker, key), "title": title, "x": axis, "y": RATE,
                     "curves": curves}
                )  # fmt: skip


def _settings(found: Found) -> Iterator[str]:
    yield "| peer | release | brokers here | how it is run | when a worker is killed, a message |"
    yield "|---|---|---|---|---|"
    releases = {
        name: row["release"]
        for workloads in found.values()
        for one in workloads.values()
        for name, row in _sound(one["rows"]).items()
    }
    for peer in CATALOGUE.values():
        brokers = ", ".join(BROKERS[kind] for kind in peer.brokers)
        release = releases.get(peer.name, "-")
        yield f"| {peer.name} | {release} | {brokers} | {peer.settings} | {peer.killed} |"


def _measured(broker: str, workloads: Mapping[str, Any]) -> Iterator[str]:
    columns = [column for column in COLUMNS if column[1] in workloads]
    if columns:
        yield "\n".join(_side_by_side(workloads, columns))
    if "noop" in workloads:
        yield f"![No-op on {BROKERS[broker]}](figures/{_file(broker, 'noop')})"
    for key, axis in GROWTH.items():
        if key in workloads:
            yield "\n".join(_growth(workloads[key]["rows"], axis))
            yield f"![No-op by {axis}](figures/{_file(broker, key)})"
    yield "\n".join(_conditions(workloads))


def _side_by_side(
    workloads: Mapping[str, Any], columns: Sequence[tuple[str, str, str]]
) -> Iterator[str]:
    yield f"| peer | {' | '.join(heading for heading, _, _ in columns)} |"
    yield f"|---|{'---:|' * len(columns)}"
    for name in CATALOGUE:
        if any(name in workloads[key]["rows"] for _, key, _ in columns):
            cells = " | ".join(_cell(workloads[key], name, what) for _, key, what in columns)
            yield f"| {name} | {cells} |"


def _cell(workload: Mapping[str, Any], name: str, what: str) -> str:
    row = workload["rows"].get(name, {})
    if what not in row:
        return "-"
    unfinished = what == "rate" and row["handled"] < workload["conditions"]["events"]
    return number(row[what]) + ("*" if unfinished else "")


def _growth(rows: Mapping[str, Any], axis: str) -> Iterator[str]:
    sound = _sound(rows)
    sizes = _sizes(next(iter(sound.values()), {}))
    yield f"| no-op /s by {axis} | {' | '.join(number(int(size)) for size in sizes)} |"
    yield f"|---|{'---:|' * len(sizes)}"
    for name, row in sound.items():
        yield f"| {name} | {' | '.join(number(row[size]) for size in sizes)} |"


def _conditions(workloads: Mapping[str, Any]) -> Iterator[str]:
    for key, one in workloads.items():
        shown = {name: value for name, value in one["conditions"].items() if name != "versions"}
        told = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in shown.items())
        yield f"* {key}: {told}"
        for name, row in one["rows"].items():
            if "reason" in row:
                yield f"    * {name} was not measured: {row['reason'].splitlines()[0]}"


def _sound(rows: Mapping[str, Any]) -> dict[str, Any]:
    """Those that were measured."""
    return {name: row for name, row in rows.items() if "reason" not in row}


def _sizes(row: Mapping[str, Any]) -> list[str]:
    """What a row of growth has a rate for."""
    return [size for size in row if size != "release"]


def _file(broker: str, key: str) -> str:
    return f"peers-{broker}-{key}.svg"
