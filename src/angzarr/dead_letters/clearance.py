"""Clearance: what a letter must pass before it is replayed, and the message it then has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from angzarr.dead_letters.foreign_replay import Routes, letter_for, routed
from angzarr.dead_letters.letter import DeadLetter, Distrusted, Refusal
from angzarr.dead_letters.protection import Cipher, is_sealed, key_id, opened
from angzarr.dead_letters.queue import RawLetter
from angzarr.dead_letters.redaction import hides
from angzarr.dead_letters.signing import Signatures, SignatureVerdict, Trust

_WHY: Final = {
    Trust.UNSIGNED: (
        "it is not signed: another system wrote it, or a worker without dlq.signing_keys"
        " (dlq.accept_unsigned: true lets such letters pass)"
    ),
    Trust.UNKNOWN_KEY: "it is signed with the key {key!r}, which is not among dlq.signing_keys",
    Trust.FORGED: "its signature is not that of the key {key!r}: it was forged or changed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Clearance:
    """Verifies, opens, and gives a letter of others its message."""

    signatures: Signatures = field(default_factory=Signatures)
    accept_unsigned: bool = False
    cipher: Cipher | None = None
    routes: Routes = field(default_factory=dict)

    def __call__(self, letter: DeadLetter) -> DeadLetter | Refusal:
        """Return *letter* with the message that a replay sends, or why there is none."""
        verdict = self.signatures.judge(letter)
        if not self._passes(verdict):
            return Distrusted(_WHY[verdict.trust].format(key=verdict.key[:100]))
        if letter.envelope:  # with a task it is ours, and has more to say than this release knows
            return letter if letter.message.task else routed(letter, self.routes)
        if is_sealed(letter):  # a body that lies elsewhere is opened once it was fetched
            return letter if letter.payload is not None else opened(letter, self.cipher)
        if hides(letter):
            return Refusal(
                "values of its message were removed and no key was there to seal them:"
                " publish the event again, and see dlq.encryption_keys"
            )
        return letter

    def vouches(self, letter: DeadLetter) -> bool:
        """Whether what *letter* says of its failure is signed, or need not be here."""
        verdict = self.signatures.judge(letter)
        if verdict.trust is Trust.VALID:
            return verdict.full
        return self._passes(verdict)

    def record(self, given: RawLetter) -> DeadLetter | Refusal:
        """Return what is no letter as one with the message that a replay sends, or why not."""
        verdict = SignatureVerdict(Trust.UNSIGNED)
        if given.record is not None and not self._passes(verdict):
            return Distrusted(_WHY[verdict.trust].format(key=""))
        return letter_for(given, self.routes)

    def told(self, letter: DeadLetter) -> Mapping[str, str]:
        """Return what a person is told of the letter's protection; nothing where there is none."""
        trust, key, full = self.signatures.judge(letter)
        told = {}
        if self.signatures.keys or trust is not Trust.UNSIGNED:
            told["signature"] = f"{trust}, key {key}" if key else str(trust)
            if trust is Trust.VALID and not full:
                told["signature"] += ", of the message alone"
        if is_sealed(letter):
            key = key_id(letter)
            told["sealed"] = f"key {key}" if key else "yes"
        return told

    def _passes(self, verdict: SignatureVerdict) -> bool:
        if not self.signatures.keys or verdict.trust is Trust.VALID:
            return True
        return self.accept_unsigned and verdict.trust is Trust.UNSIGNED
