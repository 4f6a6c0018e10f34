"""What a ballot is and which ballots agree. One verifier a file."""

from collections.abc import Mapping
from typing import Any, Protocol, cast

from gradmarket.market import plugins
from gradmarket.market.terms import ReplicaId


class Verifier(Protocol):
    """What a file in this folder offers."""

    def groups(self, ballots: Mapping[ReplicaId, Any], allowed: Any = None) -> list[frozenset[ReplicaId]]:
        """The groups of agreeing replicas, the largest first; who revealed nothing (None) is in none.

        The groups do not overlap, and depend on neither arrival nor ids. `allowed` is what a calibration found.
        """


def verifier(name: str) -> Verifier:
    """The verifier of that name. Raises Refused where there is none."""
    return cast(Verifier, plugins.load(__name__, name))
