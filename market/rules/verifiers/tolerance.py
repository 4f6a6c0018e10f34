"""`tolerance`: workers of several determinism classes agree where every tensor's sketch is near.

    deviation_t(a, b) = |a_t - b_t| / (max(|a_t|, |b_t|) + 10^-3 * median over tensors of max(|a_u|, |b_u|))

Each tensor is held against its own length, so one small tensor that was tampered with is not lost in a large whole; the
second term is for tensors that are nothing but rounding (a bias before BatchNorm). What is allowed comes from honest
runs of this pair of classes under this codec (rules.calibration), never from a guess: a pair that nobody calibrated
does not agree. A group is a medoid with its neighbours, so two of its members are at most twice the allowed apart: A
near B and B near C never puts C with A unless both are near one ballot. A patient liar just under the threshold gains
at most that much a round.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

import numpy as np

from gradmarket.market.rules.projection import Sketch
from gradmarket.market.rules.verifiers import Revealed
from gradmarket.market.terms import ReplicaId

SKETCHED: Final = True
SCORED: Final = False
FLOOR: Final = 1e-3
"""Of the median tensor's length: below it a tensor is taken for rounding."""

Classes = tuple[str, str]
"""Two determinism classes, the first by name first."""
Allowed = Mapping[Classes, Mapping[str, float]]
"""The largest deviation of each tensor, for a pair of classes."""


@dataclass(frozen=True, slots=True)
class SketchBallot:
    determinism_class: str
    sketch: Sketch


def ballot(revealed: Revealed) -> SketchBallot | None:
    return None if revealed.sketch is None else SketchBallot(revealed.determinism_class, revealed.sketch)


def pair(one: str, other: str) -> Classes:
    return (one, other) if one <= other else (other, one)


def tell(allowed: Allowed) -> list[dict[str, Any]]:
    """As JSON."""
    return [{"classes": list(classes), "tau": dict(tau)} for classes, tau in sorted(allowed.items())]


def read(told: Iterable[Mapping[str, Any]]) -> dict[Classes, Mapping[str, float]]:
    """What `tell` told."""
    return {pair(*each["classes"]): each["tau"] for each in told}


def near(one: SketchBallot, other: SketchBallot, allowed: Allowed) -> bool:
    """Whether no tensor of the two is further apart than is allowed for it."""
    return _apart(one, other, allowed) <= 1.0


def deviations(one: Sketch, other: Sketch) -> dict[str, float]:
    """Each tensor's deviation; infinite where names differ or just one of the two is finite, 0 where neither is."""
    if one.keys() != other.keys():
        return dict.fromkeys(one.keys() | other.keys(), np.inf)
    lengths = {name: max(_length(one[name]), _length(other[name])) for name in one}
    floor = FLOOR * float(np.median([length for length in lengths.values() if np.isfinite(length)] or [0.0]))
    return {name: _deviation(one[name], other[name], length + floor) for name, length in lengths.items()}


def groups(ballots: Mapping[ReplicaId, SketchBallot | None], allowed: Allowed) -> list[frozenset[ReplicaId]]:
    """Medoids with their neighbours, the most neighbours first; each is taken out before the next is looked for."""
    cast = {replica: ballot for replica, ballot in ballots.items() if ballot is not None}
    apart = dict.fromkeys(((replica, replica) for replica in cast), 0.0)
    for one, other in combinations(cast, 2):
        apart[one, other] = apart[other, one] = _apart(cast[one], cast[other], allowed)
    left, found = set(cast), []
    while left:
        medoid = min(left, key=lambda replica: _rank(replica, left, cast, apart))
        near = frozenset(other for other in left if apart[medoid, other] <= 1.0)
        found.append(near)
        left -= near
    return sorted(found, key=lambda members: (-len(members), min(_bytes(cast[replica]) for replica in members)))


def _apart(one: SketchBallot, other: SketchBallot, allowed: Allowed) -> float:
    """The largest deviation over what is allowed for its tensor: neighbours are at most 1 apart."""
    found = deviations(one.sketch, other.sketch)
    if not any(found.values()):
        return 0.0
    limits = allowed.get(pair(one.determinism_class, other.determinism_class), {})
    return max(deviation / limits[name] if limits.get(name) else np.inf for name, deviation in found.items())


def _rank(
    replica: ReplicaId,
    left: set[ReplicaId],
    cast: Mapping[ReplicaId, SketchBallot],
    apart: Mapping[tuple[ReplicaId, ReplicaId], float],
) -> tuple[int, float, bytes]:
    """Most neighbours, then nearest to them, then by what was computed: never by id."""
    near = sorted(apart[replica, other] for other in left if apart[replica, other] <= 1.0)
    return -len(near), sum(near), _bytes(cast[replica])


def _bytes(ballot: SketchBallot) -> bytes:
    return b"".join(ballot.sketch[name].tobytes() for name in sorted(ballot.sketch))


def _length(numbers: np.ndarray) -> float:
    return float(np.sqrt(np.sum(np.square(numbers, dtype=np.float64))))


def _deviation(one: np.ndarray, other: np.ndarray, scale: float) -> float:
    finite = bool(np.isfinite(one).all()), bool(np.isfinite(other).all())
    if not all(finite):
        return np.inf if any(finite) else 0.0
    if one.shape != other.shape:
        return np.inf
    apart = _length(one.astype(np.float64) - other.astype(np.float64))
    return apart / scale if apart else 0.0
