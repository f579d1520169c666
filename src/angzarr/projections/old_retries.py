"""Old retries: how often a projection is tried as `MAX_RETRIES` and `RETRY_BACKOFF_BASE` said it.

Both are deprecated and yield to `retry_policy` (spec P1).
"""

from __future__ import annotations

import warnings
from typing import Final

from angzarr.errors import ConfigurationError
from angzarr.projections.projection import Projection
from angzarr.resilience.backoff import Policy
from angzarr.resilience.retry_policies import ExponentialBackoff

#: The policy of projections that say nothing.
DEFAULT: Final = "projection"

_OLD: Final = ("MAX_RETRIES", "RETRY_BACKOFF_BASE")
#: Seconds of the longest delay, where the first one is not longer.
_LONGEST: Final = 60


def policy_of(
    kind: type[Projection], said: Policy | str | None = None, *, stacklevel: int = 1
) -> Policy | str:
    """Return the policy of *kind*: as the decorator *said*, else as the class does.

    Old attributes are warned of, as if *stacklevel* frames above the caller. Raises
    ConfigurationError for what they cannot be.
    """
    chosen = kind.retry_policy if said is None else said
    old = [name for name in _OLD if hasattr(kind, name)]
    if not old:
        return DEFAULT if chosen is None else chosen
    what = f"{kind.__qualname__}.{' and '.join(old)}"
    if chosen is not None:
        msg = f"{what}: not heeded beside retry_policy; remove it"
        warnings.warn(msg, DeprecationWarning, stacklevel=stacklevel + 1)
        return chosen
    policy, spelled = _as_they_say(kind)
    msg = f"{what}: deprecated; write retry_policy = {spelled}"
    warnings.warn(msg, DeprecationWarning, stacklevel=stacklevel + 1)
    return policy


def _as_they_say(kind: type[Projection]) -> tuple[Policy, str]:
    """Return the policy, and how it is written today: `MAX_RETRIES` counted all runs."""
    runs, base = getattr(kind, "MAX_RETRIES", 3), getattr(kind, "RETRY_BACKOFF_BASE", 2)
    if isinstance(runs, bool) or not isinstance(runs, int) or runs < 1:
        msg = f"{kind.__qualname__}.MAX_RETRIES counts all runs, so it is 1 or more: {runs!r:.50}"
        raise ConfigurationError(msg)
    if isinstance(base, bool) or not isinstance(base, int | float) or not 0 <= base < _A_YEAR:
        msg = f"{kind.__qualname__}.RETRY_BACKOFF_BASE is a number of seconds: {base!r:.50}"
        raise ConfigurationError(msg)
    longest = max(_LONGEST, base)
    policy = ExponentialBackoff(max_retries=runs - 1, first_delay=base, max_delay=longest)
    more = f", max_delay={longest:g}" if longest > _LONGEST else ""
    return policy, f"ExponentialBackoff(max_retries={runs - 1}, first_delay={base:g}{more})"


_A_YEAR: Final = 365 * 86_400
