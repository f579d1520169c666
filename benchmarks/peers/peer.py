"""Peer: a task queue as its own documentation starts it, and what the table says about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from importlib.metadata import distributions
from pathlib import Path

from harness.book import CHECKOUT
from harness.figure import NotMeasured

REDIS, RABBITMQ = "redis", "rabbitmq"
#: The environment that angzarr and bare Celery share, so that both have the same libraries.
OWN = ".venv"
#: The environments of the others.
PEERS, OLDER = "build/peers", "build/peers-older"

Command = Sequence[str]


def _nothing_more(broker: str, folder: Path) -> AbstractContextManager[Mapping[str, str]]:
    del broker, folder
    return nullcontext({})


def _accept(log: str, environment: Mapping[str, str], events: int) -> None:
    del log, environment, events


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One row of the table.

    *commands* are the command lines of all its workers for a number of processes, the program's
    name first; *settings* and *killed* are told to people: how it is run, and what becomes of a
    message whose worker is killed. *place* lends what its processes find in their environment
    beside the broker, for the URL of one; *check* raises NotMeasured unless the log of a drain
    and what it left behind show the guarantees that the row claims.
    """

    name: str
    distribution: str
    home: str
    app: str
    commands: Callable[[int], Sequence[Command]]
    brokers: Sequence[str]
    settings: str
    killed: str
    #: Whether it runs an event again whose handler raised.
    retries: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)
    place: Callable[[str, Path], AbstractContextManager[Mapping[str, str]]] = _nothing_more
    check: Callable[[str, Mapping[str, str], int], None] = _accept

    @property
    def bin(self) -> Path:
        """The folder of its environment's programs; raises NotMeasured where it is missing."""
        folder = CHECKOUT / self.home / "bin"
        if not (folder / "python").exists():
            msg = f"{self.name} is not installed in {self.home}: run `make peers-env`"
            raise NotMeasured(msg)
        return folder

    def command_lines(self, processes: int) -> Iterator[list[str]]:
        """Yield each command line with the path of its program."""
        for program, *arguments in self.commands(processes):
            yield [str(self.bin / program), *arguments]

    def version(self) -> str:
        """The release in its environment; raises NotMeasured where it is not installed."""
        packages = [str(one) for one in (self.bin.parent / "lib").glob("python3*/site-packages")]
        for found in distributions(name=self.distribution, path=packages):
            return found.version
        msg = f"{self.distribution} is not installed in {self.home}: run `make peers-env`"
        raise NotMeasured(msg)
