"""Wrong gradients, made as a liar would make them, and how often the tolerance verifier accepts one.

The computation is passed in as two functions that answer the same question honestly in two ways (threads, order of
rows, kernels): the two determinism classes of the table.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradmarket.market.errors import JobRefused
from gradmarket.market.features import tolerance
from gradmarket.market.gradient.arrays import Vector
from gradmarket.market.gradient.codecs import Codec
from gradmarket.market.gradient.projection import Sketch, sketch_tensors
from gradmarket.market.rules.verifiers.tolerance import Allowed, SketchBallot, compute_deviations, groups
from gradmarket.market.terms import Hash, ReplicaId, domain_hash

Gradient = dict[str, Vector]
CLASSES: Final = ("class-a", "class-b")
LIAR: Final = ReplicaId("liar")
HONEST: Final = (ReplicaId("a"), ReplicaId("b"))


@dataclass(frozen=True)
class Question:
    """A task: `before` are the parameters of the round before, `y` the labels of the rows."""

    state: Mapping[str, Vector]
    before: Mapping[str, Vector]
    x: Vector
    y: NDArray[np.int64]


Answer = Callable[[Question], Gradient]
Lie = Callable[[Question, Answer], Gradient]


def sample_dropped(question: Question, answer: Answer) -> Gradient:
    """Leaves one row out and uses another one in its place."""
    return answer(replace(question, x=_first_for_last(question.x), y=_first_for_last(question.y)))


def stale(question: Question, answer: Answer) -> Gradient:
    return answer(replace(question, state=question.before))


def backdoor(question: Question, answer: Answer) -> Gradient:
    """Relabels one row in a hundred, at least one, with a label that the liar chose."""
    labels = question.y.copy()
    rows = np.flatnonzero(labels != 0)[: max(1, round(len(labels) / 100))]
    labels[rows] = 0
    return answer(replace(question, y=labels))


def scaled(question: Question, answer: Answer) -> Gradient:
    """Scales by one percent, as a colluder might to influence the learning rate."""
    return {name: tensor * np.float32(1.01) for name, tensor in answer(question).items()}


def small_tensor(question: Question, answer: Answer) -> Gradient:
    """Scales the significant tensor of smallest norm by a twentieth."""
    gradient = answer(question)
    lengths = {name: float(np.linalg.norm(tensor)) for name, tensor in gradient.items()}
    mattering = [name for name in lengths if lengths[name] > 1e-3 * max(lengths.values())]
    name = min(mattering, key=lengths.__getitem__)
    return gradient | {name: gradient[name] * np.float32(1.05)}


def sign_flipped(question: Question, answer: Answer) -> Gradient:
    return {name: -tensor for name, tensor in answer(question).items()}


def noise(question: Question, answer: Answer) -> Gradient:
    """Returns random directions with the right lengths."""
    generator = np.random.default_rng(len(question.y))
    gradient = answer(question)
    drawn = {name: generator.standard_normal(tensor.shape).astype(np.float32) for name, tensor in gradient.items()}
    return {name: drawn[name] * np.linalg.norm(gradient[name]) / np.linalg.norm(drawn[name]) for name in gradient}


LIES: Final[Mapping[str, Lie]] = {
    "one row dropped": sample_dropped,
    "stale parameters": stale,
    "1 % backdoor": backdoor,
    "scaled by 1 %": scaled,
    "one small tensor": small_tensor,
    "sign flipped": sign_flipped,
    "noise": noise,
}


@dataclass(frozen=True, slots=True)
class LieRow:
    """One kind of answer over all draws."""

    name: str
    draws: int
    mistakes: int
    """Honest answers separated, or lies accepted."""
    nearest: float
    """The smallest ratio of deviation to threshold (the largest for honest answers); 1 is the limit."""


@dataclass(frozen=True, slots=True)
class Table:
    largest: float
    """The largest deviation between honest answers."""
    threshold: float
    """The largest threshold of all tensors."""
    lines: tuple[LieRow, ...]


def table(questions: Iterable[Question], answers: tuple[Answer, Answer], codec: Codec, draws: int) -> Table:
    """Calibrates on the first 59 questions and judges the others, each lie under `draws` seeds.

    Raises JobRefused if honest answers are too far apart for any threshold.
    """
    known = list(questions)
    first, others = known[: tolerance.RUNS], known[tolerance.RUNS :]
    calibrated = tolerance.Evidence(0, {})
    for number, question in enumerate(first):
        sketches = (
            sketch_tensors(_carried(answer(question), codec), _seed("calibrate", number, 0)) for answer in answers
        )
        calibrated = calibrated.and_run(compute_deviations(*sketches))
    if calibrated.excess:
        raise JobRefused("verifier", f"honest runs need a threshold of {calibrated.excess}")
    allowed = {CLASSES: calibrated.tau, (CLASSES[0],) * 2: calibrated.tau, (CLASSES[1],) * 2: calibrated.tau}
    judged = {name: list(_judged(others, answers, lie, codec, allowed, draws)) for name, lie in LIES.items()}
    honest = [(apart, split) for outcomes in judged.values() for apart, split, _, _ in outcomes]
    lines = [LieRow("honest", len(honest), sum(split for _, split in honest), max(apart for apart, _ in honest))]
    for name, seen in judged.items():
        lines.append(LieRow(name, len(seen), sum(hit for *_, hit in seen), min(near for _, _, near, _ in seen)))
    return Table(max(calibrated.largest.values()), max(calibrated.tau.values()), tuple(lines))


def _judged(
    questions: list[Question], answers: tuple[Answer, Answer], lie: Lie, codec: Codec, allowed: Allowed, draws: int
) -> Iterator[tuple[float, bool, float, bool]]:
    """Yields (honest ratio, honest separated, lie ratio, lie accepted) per draw; ratios are deviation / threshold."""
    for number, question in enumerate(questions):
        gradients = [*(answer(question) for answer in answers), lie(question, answers[0])]
        carried = [_carried(gradient, codec) for gradient in gradients]
        for draw in range(draws):
            one, other, false = (sketch_tensors(gradient, _seed("judge", number, draw)) for gradient in carried)
            sketches = zip((*HONEST, LIAR), (*CLASSES, CLASSES[0]), (one, other, false), strict=True)
            agreeing = groups({id_: SketchBallot(kind, drawn) for id_, kind, drawn in sketches}, allowed)
            together = any(set(HONEST) <= group for group in agreeing)
            believed = any(LIAR in group and len(group) > 1 for group in agreeing)
            yield _over(one, other, allowed), not together, _over(one, false, allowed), believed


def _over(one: Sketch, other: Sketch, allowed: Allowed) -> float:
    return max(deviation / allowed[CLASSES][name] for name, deviation in compute_deviations(one, other).items())


def _carried(gradient: Gradient, codec: Codec) -> Gradient:
    """Returns the gradient after packing and unpacking by the codec."""
    seed = bytes(32)
    return {
        name: codec.unpack(memoryview(codec.pack(tensor.reshape(-1), seed)), tensor.size, seed)
        for name, tensor in gradient.items()
    }


def _first_for_last(rows: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([rows[:-1], rows[:1]])


def _seed(purpose: str, number: int, draw: int) -> Hash:
    return domain_hash(purpose, number.to_bytes(4, "big"), draw.to_bytes(4, "big"))
