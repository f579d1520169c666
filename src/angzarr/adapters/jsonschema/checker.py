"""Checks values against JSON schemas in a process of its own, which is stopped in bounded time.

A schema is hostile input. A pattern such as ``(a+)+$`` tries for years, references that fan out do
the same, and both hold the interpreter's lock: no thread could stop them. To refuse patterns by
their looks would refuse good ones and miss bad ones, and says nothing of references. A schema is
checked when a person puts a version, so that a process is a fair price; workers never check.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import Any, Final

import jsonschema  # noqa: F401 - whoever lacks it is told here, not by the process

from angzarr.errors import ConfigurationError, ConfigurationUnfit
from angzarr.runtime.text import printable

_CHILD: Final = "angzarr.adapters.jsonschema.child"
#: Seconds of processor time that a check may take; 60,000 objects with a pattern each take 2.
SECONDS: Final = 10.0
#: Bytes of memory that the process may have.
MEMORY: Final = 1024**3
#: Seconds until an answer is waited for no longer, however busy the machine is.
_PATIENCE: Final = 120.0
#: Characters of what a process that fails says.
_LONGEST: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonSchemaChecker:
    """Fulfils `SchemaChecker`. Safe to use from many threads."""

    seconds: float = SECONDS
    memory: int = MEMORY

    def check(self, value: Any, schema: Any, /) -> None:
        """Refuse what is not a JSON schema, and a value that breaks it or cannot be checked.

        Raises ConfigurationUnfit, which names the most telling place, and ConfigurationError where
        no process can be had.
        """
        done = self._run(json.dumps({"value": value, "schema": schema}))
        if done.returncode == -signal.SIGXCPU:
            raise self._too_costly("")
        if done.returncode == -signal.SIGKILL:
            raise _failed("it was killed, perhaps for want of memory")
        try:
            answer: dict[str, str] = json.loads(done.stdout)
        except ValueError:
            raise _failed(done.stderr.strip().rpartition("\n")[2] or "it said nothing") from None
        if "costly" in answer:
            raise self._too_costly(answer["costly"])
        if "unfit" in answer:
            raise ConfigurationUnfit(answer["unfit"])

    def _run(self, order: str) -> subprocess.CompletedProcess[str]:
        # -P: a file of the person, such as resource.py, is not taken for the module of that name.
        command = [sys.executable, "-P", "-m", _CHILD, str(self.seconds), str(self.memory)]
        try:
            return subprocess.run(  # noqa: S603 - our own module
                command, input=order, timeout=_PATIENCE, capture_output=True, text=True,
                encoding="utf-8", check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            late = f"it did not answer within {_PATIENCE:g} s"
            raise _failed(late) from None
        except OSError as error:
            raise _failed(str(error)) from None

    def _too_costly(self, at: str) -> ConfigurationUnfit:
        where = f", at {at}" if at else ""
        return ConfigurationUnfit(
            f"the schema takes more than {self.seconds:g} s or {self.memory >> 20:,} MiB to"
            f" check{where}: simplify it, and let no pattern repeat a repetition, as (a+)+ does"
        )


def _failed(why: str) -> ConfigurationError:
    return ConfigurationError(
        f"the process that checks the schema failed: {printable(why[:_LONGEST])}: nothing was put;"
        " try again"
    )
