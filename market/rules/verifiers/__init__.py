"""What a ballot is and which ballots agree. One verifier a file."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

from gradmarket.market import plugins
from gradmarket.market.rules.projection import Sketch
from gradmarket.market.terms import Digest, ReplicaId


@dataclass(frozen=True, slots=True)
class Revealed:
    """What a replica answered, as it opened it; `sketch` under the wave's seed, where the verifier compares it."""

    root: Digest
    determinism_class: str
    sketch: Sketch | None


class VerifierRule(Protocol):
    """What a file in this folder offers."""

    @property
    def SKETCHED(self) -> bool:  # noqa: N802
        """Whether ballots are sketches. A wave that follows another would know the seed that it sketched under."""

    @property
    def SCORED(self) -> bool:  # noqa: N802
        """Whether audits score an answer by the loss (rules.loss_change), instead of looking for its root again."""

    def ballot(self, revealed: Revealed) -> Any:
        """What is compared of it; None where it has no such thing."""

    def groups(self, ballots: Mapping[ReplicaId, Any], allowed: Any = None) -> list[frozenset[ReplicaId]]:
        """The groups of agreeing replicas, the largest first; who revealed nothing (None) is in none.

        The groups do not overlap, and depend on neither arrival nor ids. `allowed` is what a calibration found.
        """


def verifier(name: str) -> VerifierRule:
    """The verifier of that name. Raises Refused where there is none."""
    return cast(VerifierRule, plugins.load(__name__, name))
