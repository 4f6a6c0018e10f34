"""The definition of a ballot and of agreement between ballots. Each verifier is one file."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from gradmarket.market.gradient.projection import Sketch
from gradmarket.market.terms import Digest, ReplicaId
from graphdoc import plugins

DEFAULT: Final = "exact"
"""The verifier of a job that names none."""


@dataclass(frozen=True, slots=True)
class Revealed:
    """A replica's revealed answer; `sketch` is under the wave's seed, None where the verifier compares none."""

    root: Digest
    determinism_class: str
    sketch: Sketch | None


class VerifierRule(Protocol):
    """The interface of a file in this folder."""

    @property
    def SKETCHED(self) -> bool:  # noqa: N802
        """Whether ballots are sketches. Such a task has one wave: workers of a later one would know its seed."""

    @property
    def SCORED(self) -> bool:  # noqa: N802
        """Whether audits score an answer by the loss (features.loss_change) instead of comparing roots."""

    def ballot(self, revealed: Revealed) -> Any:
        """Returns the part of an answer that is compared; None where it is missing."""

    def groups(self, ballots: Mapping[ReplicaId, Any], allowed: Any = None) -> list[frozenset[ReplicaId]]:
        """Returns the groups of agreeing replicas, the largest first.

        Replicas that revealed nothing (None) are in none. The groups do not overlap, and depend on neither arrival
        order nor ids. `allowed` are the calibrated thresholds.
        """


def load_verifier(name: str) -> VerifierRule:
    """Returns the verifier of that name. Raises Refused where there is none."""
    return cast(VerifierRule, plugins.load_plugin(__name__, name))
