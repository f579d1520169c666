"""What a server of the tests is: how it is installed, launched and asked whether it is ready."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from processes import Process

#: The checkout these servers belong to; everything they write lies below `build/servers`.
CHECKOUT = Path(__file__).resolve().parents[2]
HOME = CHECKOUT / "build" / "servers"
LOOPBACK = "127.0.0.1"


class CannotStart(Exception):
    """A server that cannot be had here; the text says why and what to do."""


@dataclass(frozen=True)
class Place:
    """A server's private folder and its ports, all on the loopback interface."""

    folder: Path
    ports: tuple[int, ...]

    @property
    def port(self) -> int:
        return self.ports[0]

    @property
    def log(self) -> Path:
        return self.folder / "server.log"


@dataclass(frozen=True, kw_only=True)
class Server:
    """One server; `launch` may run again over the data that an earlier launch left."""

    name: str
    #: The variables that tell tests where it is.
    addresses: Callable[[Place], dict[str, str]]
    ports: int
    install: Callable[[], None]
    launch: Callable[[Place], list[Process]]
    ready: Callable[[Place], bool]
    #: Longest wait for readiness, in seconds.
    patience: float
    #: Which port variables of compose.yaml its ports fill, in order.
    compose_ports: tuple[str, ...]

    @property
    def variables(self) -> list[str]:
        return list(self.addresses(Place(HOME, (0,) * self.ports)))

    @property
    def variable(self) -> str:
        """The one that, given in the environment, says that the server is somebody else's."""
        return self.variables[0]
