"""How safe letters are in a topic of Kafka's: what ours are made with, what others' lack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

#: Letters are kept until somebody is done with them, not for Kafka's seven days.
BASE: Final[Mapping[str, str]] = {"retention.ms": "-1", "cleanup.policy": "delete"}
_ONE_REPLICA: Final = "one replica (give it 3 and min.insync.replicas=2)"
#: With this many replicas one may be away, and a letter still has two.
_ENOUGH_REPLICAS: Final = 3
#: Where there are enough replicas: with fewer in sync a letter is refused, and put again.
IN_SYNC: Final[Mapping[str, str]] = {"min.insync.replicas": "2"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A topic as it is; settings that Kafka did not tell are missing."""

    name: str
    brokers: int
    replicas: int
    settings: Mapping[str, str]


def settings_for(replication: int) -> dict[str, str]:
    """Return all that a new topic should have; -1 replicas is the broker's number, unknown yet."""
    own = {**BASE, "retention.bytes": "-1", "unclean.leader.election.enable": "false"}
    return {**own, **IN_SYNC} if replication >= _ENOUGH_REPLICAS else own


def lacks_in_sync(topic: Found) -> bool:
    """Tell whether one replica may take a letter alone where two could be asked for."""
    in_sync = topic.settings.get("min.insync.replicas", "")
    return topic.replicas >= _ENOUGH_REPLICAS and in_sync == "1"


def weaknesses(topic: Found) -> list[str]:
    """Return by what letters in *topic* could be lost, each with what to do."""
    given = topic.settings
    told = [
        f"{name}={given[name]} (set it to -1)"
        for name in ("retention.ms", "retention.bytes")
        if given.get(name, "-1") != "-1"
    ]
    if "compact" in given.get("cleanup.policy", ""):
        told.append(f"cleanup.policy={given['cleanup.policy']} (set it to delete)")
    if given.get("unclean.leader.election.enable") == "true":
        told.append("unclean.leader.election.enable=true (set it to false)")
    if topic.replicas == 1:
        told.append(_ONE_REPLICA)
    if lacks_in_sync(topic):
        told.append("min.insync.replicas=1 (set it to 2)")
    return told


def is_worth_a_warning(topic: Found) -> bool:
    """Tell it from the one replica of a single broker, which is a laptop's or was chosen."""
    return topic.brokers > 1 or weaknesses(topic) != [_ONE_REPLICA]
