"""Protection wiring: from settings to what letters pass on their way out, and before a replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from angzarr.dead_letters.letter import DeadLetter
from angzarr.dead_letters.masking import Words, compiled, masked
from angzarr.dead_letters.protection import Cipher, Clearance, ProtectedQueue, Protection
from angzarr.dead_letters.queue import DeadLetterQueue
from angzarr.dead_letters.redaction import Redaction
from angzarr.dead_letters.replay_outcome import ReplayOutcomes, SignedOutcomes
from angzarr.dead_letters.signing import Signatures
from angzarr.settings.dead_letters import DeadLetterSettings
from angzarr.settings.keys import current_key
from angzarr.wiring import stores as wiring


def protected(queue: DeadLetterQueue, given: DeadLetterSettings) -> DeadLetterQueue:
    """*queue* behind the protection that the settings ask for, *queue* itself if they ask for none.

    Raises MissingExtra where letters are to be sealed and the library is not there.
    """
    if not (given.redact or given.redact_text or given.encryption_keys or given.signing_keys):
        return queue
    return ProtectedQueue(queue, open_protection(given))


def open_protection(given: DeadLetterSettings) -> Protection:
    """The protection of a letter before it leaves or is kept."""
    return Protection(
        redaction=_redaction(given),
        cipher=_cipher(given),
        encrypt=given.encrypted(),
        signatures=_signatures(given),
    )


def hides(given: DeadLetterSettings) -> bool:
    """True if a part of each letter is redacted, or all of it is sealed."""
    return bool(given.redact or given.redact_text or given.encryption_keys)


def hiding(given: DeadLetterSettings) -> Callable[[DeadLetter], DeadLetter] | None:
    """A function that takes secrets out of the texts of a letter; None: there are no secrets."""
    return _redaction(given).of_texts if given.redact or given.redact_text else None


def _redaction(given: DeadLetterSettings) -> Redaction:
    return Redaction.of(given.redact, [compiled(pattern) for pattern in given.redact_text])


def open_clearance(given: DeadLetterSettings) -> Clearance:
    """The checks that a letter must pass before it is replayed."""
    return Clearance(
        signatures=_signatures(given),
        accept_unsigned=given.accept_unsigned,
        cipher=_cipher(given),
        routes=given.routes_of_others(),
    )


def believed(queue: ReplayOutcomes, given: DeadLetterSettings) -> ReplayOutcomes:
    """*queue* with outcomes that are signed and verified, where there are signing keys."""
    if not given.signing_keys:
        return queue
    return SignedOutcomes(
        queue=queue, signatures=_signatures(given), accept_unsigned=given.accept_unsigned
    )


def _signatures(given: DeadLetterSettings) -> Signatures:
    keys = given.verifying_keys()
    return Signatures(keys=keys, current=current_key("signing_key", given.signing_key, keys))


def _cipher(given: DeadLetterSettings) -> Cipher | None:
    keys = given.opening_keys()
    current = current_key("encryption_key", given.encryption_key, keys)
    if current is None:
        return None
    cipher: Cipher = wiring.adapter("angzarr.adapters.jose.jwe", "joserfc").JweCipher(keys, current)
    return cipher


#: No words of its own are looked for in a text, only patterns.
_NO_WORDS: Final = Words()


def without_secrets(given: DeadLetterSettings, text: str) -> str:
    """*text* without the parts that the settings hide in the texts of letters."""
    return masked(text, _NO_WORDS, [compiled(pattern) for pattern in given.redact_text])
