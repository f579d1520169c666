"""An image run as an engine runs it: by its own user, its files read-only, in its own namespaces.

PID 1 is what the image's ENTRYPOINT says. The network is this machine's, so that the real servers
are reached. Needs root, as an engine does.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from polling import PATIENCE

#: Makes the root of image $1 read-only, with folder $2 or nothing as /app and folder $3 or a small
#: file system in memory as /tmp, and becomes the command as user $4: no capability, no new one.
_ENTER = """
root=$1 app=$2 tmp=$3 user=$4 folder=$5; shift 5
mount --make-rprivate /
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
if [ -n "$tmp" ]; then mount --bind "$tmp" "$root/tmp"
else mount -t tmpfs -o nosuid,nodev,size=64m,mode=1777 tmpfs "$root/tmp"; fi
if [ -n "$app" ]; then mount --bind -o ro "$app" "$root/app"; fi
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o nosuid,nodev,mode=1777 tmpfs "$root/dev/shm"
exec chroot "$root" setpriv --reuid="${user%:*}" --regid="${user#*:}" --clear-groups \\
  --no-new-privs --bounding-set=-all --inh-caps=-all env --chdir="$folder" "$@"
"""


@dataclass
class Container:
    """One container of the image with *config*, its files below *root*; ends with the `with` block.

    *command* and *environment* are what `docker run` would be given, *app* is what is in /app.
    *tmp* is a folder to look at /tmp by; else it is a file system of its own.
    """

    root: Path
    config: Mapping[str, Any]
    command: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    app: Path | None = None
    tmp: Path | None = None
    entrypoint: Sequence[str] | None = None
    log: Path | None = None

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            output = opened.enter_context(self.log.open("ab")) if self.log else subprocess.PIPE
            self.outside = subprocess.Popen(
                self._outer(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={"PATH": os.environ["PATH"]},
                text=not self.log,
            )
        return self

    def __exit__(self, *_: object) -> None:
        """Kill PID 1, and by that all that is in there."""
        if self.outside.poll() is None:
            self.outside.kill()  # its child goes with it
        self.outside.wait(PATIENCE)
        if self.outside.stdout:
            self.outside.stdout.close()

    def _outer(self) -> list[str]:
        entrypoint = self.config["Entrypoint"] if self.entrypoint is None else self.entrypoint
        command = self.command or self.config["Cmd"]
        told = [*self.config["Env"], *(f"{key}={value}" for key, value in self.environment.items())]
        return [
            "unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child",
            "sh", "-euc", _ENTER, "enter", str(self.root), str(self.app or ""), str(self.tmp or ""),
            self.config["User"], self.config["WorkingDir"] or "/",
            "--ignore-environment", *told, *entrypoint, *command,
        ]  # fmt: skip

    @property
    def first(self) -> int:
        """PID 1, by its number out here."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            children = _children(self.outside.pid)
            if children and b"unshare" not in _command_line(children[0]):
                return children[0]
            time.sleep(0.01)
        msg = "the container did not begin"
        raise AssertionError(msg)

    def processes(self) -> list[int]:
        """All that is in there, PID 1 first, by their numbers out here."""
        found, todo = [], [self.first]
        while todo:
            found.append(todo.pop(0))
            todo.extend(_children(found[-1]))
        return found

    def stop(self, patience: float = PATIENCE) -> int:
        """Do what `docker stop` does, and return the exit code: 137 when it had to kill."""
        with suppress(ProcessLookupError):
            os.kill(self.first, signal.SIGTERM)
        try:
            return self.outside.wait(patience)
        except subprocess.TimeoutExpired:
            self.outside.kill()
            return 128 + signal.SIGKILL

    def finished(self, seconds: float = 3 * PATIENCE) -> tuple[int, str]:
        """Wait for its end and return exit code and what it said."""
        said, _ = self.outside.communicate(timeout=seconds)
        return self.outside.returncode, said


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _command_line(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""
