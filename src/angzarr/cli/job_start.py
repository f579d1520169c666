"""Beginning a replay job from the command line: options that make its plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click

from angzarr.analysis.job import DEFAULT_STAGES, JobPlan
from angzarr.analysis.replay_order import Expectation, ReplayOrder

_F = TypeVar("_F", bound=Callable[..., Any])

_PERCENT: Final = 100.0

_ORDERS: Final = (
    click.option("--to-queue", default="", help="Send to this queue, and not where it came from."),
    click.option("--to-handler", default="", help="Have this handler take it, and not its own."),
    click.option("--fresh-sequence", is_flag=True,
                 help="Let a command expect no sequence any more: decide it on what is there now."),
)  # fmt: skip
_OPTIONS: Final = (
    click.option(
        "--stages",
        default=",".join(map(str, DEFAULT_STAGES)),
        show_default=True,
        help="Entries replayed by the end of each stage; the first is the canary. none: no stages.",
    ),
    click.option("--rate", type=float, default=50.0, show_default=True,
                 help="Replays a second at most; 0: no limit."),
    click.option("--halt", default="20%", show_default=True,
                 help="Share of failures above which the job halts."),
    click.option("--in-flight", type=int, default=100, show_default=True,
                 help="Replays under way at a time, at most."),
    *_ORDERS,
    click.option("--note", default="", help="Why, for the history."),
    click.option("--watch", is_flag=True, help="Follow the job until it is over."),
)  # fmt: skip


def planned(command: _F) -> _F:
    """Give *command* the options that make a plan."""
    return _with(command, _OPTIONS)


def ordered(command: _F) -> _F:
    """Give *command* the options that send a replay elsewhere, or otherwise."""
    return _with(command, _ORDERS)


def order_of(to_queue: str, to_handler: str, *, fresh_sequence: bool) -> ReplayOrder:
    """Return the order that options name."""
    sequence = Expectation.FRESH_SEQUENCE if fresh_sequence else Expectation.AS_IS
    return ReplayOrder(to_queue=to_queue, to_handler=to_handler, sequence=sequence)


def _with(command: _F, options: Sequence[Callable[[_F], _F]]) -> _F:
    for option in reversed(options):
        command = option(command)
    return command


def plan_of(stages: str, rate: float, halt: str, in_flight: int, order: ReplayOrder) -> JobPlan:
    """Return the plan that options name; a sentence for those that name none."""
    try:
        numbers = () if stages == "none" else tuple(int(one) for one in stages.split(","))
        share = float(halt.removesuffix("%")) / (_PERCENT if halt.endswith("%") else 1)
    except ValueError as error:
        msg = "write --stages like 1,5,25 (or none) and --halt like 20%"
        raise click.UsageError(msg) from error
    return JobPlan(
        stages=numbers,
        rate=rate or None,
        in_flight=in_flight,
        halt_share=share,
        to_queue=order.to_queue,
        to_handler=order.to_handler,
        sequence=order.sequence,
    )
