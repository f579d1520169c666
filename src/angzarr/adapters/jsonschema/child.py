"""The process of one check: reads a value and its schema, and says in one line what is wrong.

It ends by itself: an alarm stops it after the processor time that it is given, the kernel a little
later. `checker` starts it, and reads what it prints: ``{}``, or an object with ``unfit`` or
``costly``.
"""

from __future__ import annotations

import json
import math
import resource
import signal
import sys
from contextlib import suppress
from typing import Any, Final, NoReturn

from angzarr.adapters.jsonschema.validation import SchemaTooCostly, check_value
from angzarr.errors import ConfigurationUnfit

#: Seconds between the alarm, which code of C may not hear, and the kernel's end of the process.
_GRACE: Final = 2


def main() -> None:
    """Check what standard input holds, by the seconds and bytes that the arguments are."""
    seconds, memory = float(sys.argv[1]), int(sys.argv[2])
    given = json.load(sys.stdin)
    _bound(seconds, memory)
    answer = answer_to(given["value"], given["schema"])
    signal.setitimer(signal.ITIMER_PROF, 0)
    json.dump(answer, sys.stdout)


def answer_to(value: Any, schema: Any) -> dict[str, str]:
    """What the process prints."""
    try:
        check_value(value, schema)
    except ConfigurationUnfit as error:
        return {"unfit": str(error)}
    except SchemaTooCostly as error:
        return {"costly": error.at}
    except MemoryError:
        return {"costly": ""}
    return {}


def _bound(seconds: float, memory: int) -> None:
    signal.signal(signal.SIGPROF, _stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    _lower(resource.RLIMIT_CPU, math.ceil(used + seconds) + _GRACE)
    _lower(resource.RLIMIT_AS, memory)


def _lower(limit: int, wanted: int) -> None:
    _, most = resource.getrlimit(limit)
    value = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
    with suppress(OSError, ValueError):  # macOS refuses a bound on memory
        resource.setrlimit(limit, (value, most))


def _stop(*_: object) -> NoReturn:
    raise SchemaTooCostly


if __name__ == "__main__":
    main()
