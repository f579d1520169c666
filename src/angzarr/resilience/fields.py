"""Fields of settings and policies: what each must be, said of all that are wrong at once."""

from __future__ import annotations

from angzarr.errors import ConfigurationError


def check_fields(what: str, *checks: tuple[bool, str]) -> None:
    """Raise ConfigurationError naming *what* and what is said where a check does not hold."""
    wrong = [said for fits, said in checks if not fits]
    if wrong:
        msg = f"{what}: {'; '.join(wrong)}"
        raise ConfigurationError(msg)
