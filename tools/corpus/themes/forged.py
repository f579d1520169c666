"""Letters that somebody may have forged: changed after they were signed, or never signed."""

from __future__ import annotations

from dataclasses import replace

from tools.corpus.cases import breaker, corrupt, ill, well
from tools.corpus.events import OrderPlaced
from tools.corpus.scenario import SCENARIOS, scenario
from tools.corpus.themes import http_down
from tools.corpus.workshop import provoke

from angzarr.dead_letters.codec import decode, encode
from angzarr.dead_letters.letter import DeadLetter
from angzarr.dead_letters.metadata import SIGNATURE
from angzarr.dead_letters.signing import Signatures, Trust

KEYS = Signatures(keys={"k1": b"a key of the tests, 32 bytes long"}, current="k1")


def _own() -> DeadLetter:
    """Return a letter as a worker with a signing key writes it."""
    return KEYS.sign(provoke(SCENARIOS[f"http_down.{http_down.refused.__name__}"]))


def _tampered() -> tuple[bytes, str]:
    """Change the total after the letter was signed."""
    signed = _own()
    body = signed.message.body.replace(b": 3}", b": 300}")
    forged = replace(signed, message=replace(signed.message, body=body))
    assert KEYS.judge(decode(*encode(forged))).trust is Trust.FORGED
    return tuple(encode(forged))


def _unsigned() -> tuple[bytes, str]:
    metadata = {name: text for name, text in _own().metadata.items() if name != SIGNATURE}
    unsigned = replace(_own(), metadata=metadata)
    assert KEYS.judge(decode(*encode(unsigned))).trust is Trust.UNSIGNED
    return tuple(encode(unsigned))


@scenario(
    corrupt(
        "its body was changed after it was signed: not even its reason is to be believed",
        distrusted=True,
        target_problem="its signature is not that of the key 'k1': it was forged or changed",
    ),
    well("nobody here asks for signatures, and the dependency is back", "stock-api"),
    written=_tampered,
)
def tampered(order: OrderPlaced) -> None: ...


@scenario(
    corrupt(
        "it is not signed, and this app takes signed letters only",
        distrusted=True,
        target_problem="it is not signed: another system wrote it",
        breakers=breaker("stock-api", "open", 0.9),
    ),
    ill("this app takes unsigned letters, and the dependency is down", "stock-api"),
    written=_unsigned,
)
def unsigned(order: OrderPlaced) -> None: ...
