"""`tolerance`: workers of several determinism classes agree where the sketches of every tensor are near each other.

    deviation_t(a, b) = |a_t - b_t| / (max(|a_t|, |b_t|) + 10^-3 * median over tensors of max(|a_u|, |b_u|))

Each tensor is compared relative to its own length, so one small tensor that was tampered with is not lost in a large
whole. The second term is for tensors that consist of rounding errors only (a bias before BatchNorm). The thresholds
come from honest runs of this pair of classes under this codec (features.tolerance), never from a guess: a pair that
was not calibrated does not agree. A group is a medoid with its neighbours, so two of its members are at most twice the
threshold apart: where A is near B and B near C, A and C share a group only if both are near its medoid. A patient liar
just under the threshold gains at most that much in a round.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

import numpy as np

from gradmarket.market.gradient.projection import Sketch
from gradmarket.market.rules.verifiers import Revealed
from gradmarket.market.terms import ReplicaId

SKETCHED: Final = True
SCORED: Final = False
FLOOR: Final = 1e-3
"""Share of the median tensor's length: a shorter tensor counts as rounding errors."""

Classes = tuple[str, str]
"""Two determinism classes, sorted by name."""
Allowed = Mapping[Classes, Mapping[str, float]]
"""The largest deviation of each tensor, for a pair of classes."""


@dataclass(frozen=True, slots=True)
class SketchBallot:
    determinism_class: str
    sketch: Sketch


def ballot(revealed: Revealed) -> SketchBallot | None:
    return None if revealed.sketch is None else SketchBallot(revealed.determinism_class, revealed.sketch)


def sort_classes(one: str, other: str) -> Classes:
    return (one, other) if one <= other else (other, one)


def encode_thresholds(allowed: Allowed) -> list[dict[str, Any]]:
    """Returns the thresholds as JSON."""
    return [{"classes": list(classes), "tau": dict(tau)} for classes, tau in sorted(allowed.items())]


def parse_thresholds(entries: Iterable[Mapping[str, Any]]) -> dict[Classes, Mapping[str, float]]:
    """Returns the thresholds from the JSON of `encode_thresholds`."""
    return {sort_classes(*entry["classes"]): entry["tau"] for entry in entries}


def is_ballot_near(one: SketchBallot, other: SketchBallot, allowed: Allowed) -> bool:
    """Returns whether every tensor's deviation is within its threshold."""
    return _compute_distance(one, other, allowed) <= 1.0


def compute_deviations(one: Sketch, other: Sketch) -> dict[str, float]:
    """Returns each tensor's deviation.

    Infinite where the names differ or only one of the two is finite, 0 where neither is.
    """
    if one.keys() != other.keys():
        return dict.fromkeys(one.keys() | other.keys(), np.inf)
    lengths = {name: max(_compute_l2_length(one[name]), _compute_l2_length(other[name])) for name in one}
    floor = FLOOR * float(np.median([length for length in lengths.values() if np.isfinite(length)] or [0.0]))
    deviations: dict[str, float] = {}
    for name, length in lengths.items():
        finite = [bool(np.isfinite(numbers).all()) for numbers in (one[name], other[name])]
        if not all(finite):
            deviations[name] = np.inf if any(finite) else 0.0
        elif one[name].shape != other[name].shape:
            deviations[name] = np.inf
        else:
            apart = _compute_l2_length(one[name].astype(np.float64) - other[name].astype(np.float64))
            deviations[name] = apart / (length + floor) if apart else 0.0
    return deviations


def groups(ballots: Mapping[ReplicaId, SketchBallot | None], allowed: Allowed) -> list[frozenset[ReplicaId]]:
    """Returns medoids with their neighbours, most neighbours first; each group is removed before the next is formed."""
    cast = {replica: ballot for replica, ballot in ballots.items() if ballot is not None}
    apart = dict.fromkeys(((replica, replica) for replica in cast), 0.0)
    for one, other in combinations(cast, 2):
        apart[one, other] = apart[other, one] = _compute_distance(cast[one], cast[other], allowed)
    left, grouped = set(cast), []
    while left:
        ranks = {}  # by most neighbours, then by least distance to them, then by the answer's bytes: never by id
        for replica in left:
            distances = sorted(apart[replica, other] for other in left if apart[replica, other] <= 1.0)
            ranks[replica] = -len(distances), sum(distances), _join_sketch_bytes(cast[replica])
        medoid = min(left, key=ranks.__getitem__)
        near = frozenset(other for other in left if apart[medoid, other] <= 1.0)
        grouped.append(near)
        left -= near
    return sorted(
        grouped, key=lambda members: (-len(members), min(_join_sketch_bytes(cast[replica]) for replica in members))
    )


def _compute_distance(one: SketchBallot, other: SketchBallot, allowed: Allowed) -> float:
    """Returns the largest ratio of a deviation to its threshold: neighbours have at most 1."""
    by_tensor = compute_deviations(one.sketch, other.sketch)
    if not any(by_tensor.values()):
        return 0.0
    limits = allowed.get(sort_classes(one.determinism_class, other.determinism_class), {})
    return max(deviation / limits[name] if limits.get(name) else np.inf for name, deviation in by_tensor.items())


def _join_sketch_bytes(ballot: SketchBallot) -> bytes:
    return b"".join(ballot.sketch[name].tobytes() for name in sorted(ballot.sketch))


def _compute_l2_length(numbers: np.ndarray) -> float:
    return float(np.sqrt(np.sum(np.square(numbers, dtype=np.float64))))
