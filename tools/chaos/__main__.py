"""Kill, cut and flood a running fleet, and account for every event: `python tools/chaos --help`."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[1]
CHECKOUT = TOOLS.parent
sys.path[:0] = [str(CHECKOUT), str(TOOLS)]
#: Written by a run whose faults are nearly over (`site.NEARLY`).
NEARLY = "nearly-over"
#: Run one after the other where none is named; and those that can be named.
BROKERS = ("redis", "rabbitmq")
KNOWN = (*BROKERS, "sqs")


def main() -> int:
    """Run what the command line asks for.

    Returns 1 if anything is not accounted for, 2 if it cannot run here, 3 if it broke down itself.
    """
    arguments = _parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the fleet is ended, too
    if not arguments.broker:
        return _all(arguments)
    try:
        return _one(arguments)
    except Exception:
        traceback.print_exc()
        return 3


def _all(arguments: argparse.Namespace) -> int:
    """Run broker after broker; the next starts while the one before it comes to rest."""
    share = str(arguments.duration / len(BROKERS))
    running: list[subprocess.Popen[bytes]] = []
    try:
        for broker in BROKERS:
            nearly = Path(arguments.dir).resolve() / broker / NEARLY
            nearly.unlink(missing_ok=True)
            command = [sys.executable, str(Path(__file__).parent), *sys.argv[1:]]
            running.append(subprocess.Popen([*command, "--broker", broker, "--duration", share]))
            while running[-1].poll() is None and not nearly.exists():
                time.sleep(0.2)
        codes = [one.wait() for one in running]
    except BaseException:
        for one in running:
            one.terminate()
        for one in running:
            one.wait()
        raise
    return max(map(abs, codes))


def _one(arguments: argparse.Namespace) -> int:
    import shutil

    from chaos import report
    from chaos.fleet import NotRunning
    from chaos.servers import CannotStart
    from chaos.site import Order, run

    folder = Path(arguments.dir).resolve() / arguments.broker
    shutil.rmtree(folder, ignore_errors=True)
    order = Order(
        broker=arguments.broker, seconds=arguments.duration, seed=arguments.seed, folder=folder,
        rate=arguments.rate, fates=_names(arguments.fates), kinds=_names(arguments.faults),
        mutation=arguments.mutation, patience=arguments.patience,
        long=arguments.duration >= arguments.long,
    )  # fmt: skip
    try:
        outcome = run(order)
    except (CannotStart, NotRunning) as problem:
        print(f"chaos: {problem}", file=sys.stderr)
        return 2
    print(report.render(outcome), flush=True)
    (folder / "summary.json").write_text(json.dumps(report.summary(outcome), indent=2))
    if outcome.verdict.breaches:
        print(f"histories, logs and ledger are in {folder}", file=sys.stderr)
    return 1 if outcome.verdict.breaches else 0


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",") if name.strip())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python tools/chaos", description=__doc__)
    add = parser.add_argument
    add("--duration", type=float, default=600, help="seconds of faults, shared by the brokers")
    add("--seed", type=int, default=1, help="same seed, same stream and same faults")
    add("--broker", choices=KNOWN, help="one broker only; without it one after the other")
    add("--dir", default=str(CHECKOUT / "build" / "chaos"), help="where history and logs go")
    add("--rate", type=float, default=12, help="events a second")
    add("--fates", default="", help="only these, by commas")
    add("--faults", default="", help="only these kinds, by commas")
    add("--mutation", default="", help="break angzarr on purpose: a name of mutations.py")
    add(
        "--patience",
        type=float,
        default=90,
        help="longest wait for anything new before the fleet rests, seconds",
    )
    add("--long", type=float, default=120, help="from this duration on servers are away long too")
    return parser


if __name__ == "__main__":
    sys.exit(main())
