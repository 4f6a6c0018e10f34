"""Harm to the model by lies of one of the ten-holder example's holders (`private.attack.*`).

One of the ten answers otherwise than by local steps on its rows, for all rounds, within the norm bound. worth_cheats
measures its pay by worth; with a fixed price every answer within the bounds is paid alike.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import mean
from typing import Final

import numpy as np

from benchmarks.figure import Figure
from benchmarks.private import BOUND, CAP, ROUNDS, Holders
from benchmarks.size import sized
from examples.holders import Rows
from gradmarket.market.features.private.holder_rows import compute_row_scales, count_weighed_rows
from gradmarket.market.gradient.aggregators import configure_aggregator
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.one_step import OptimizerStep
from gradmarket.market.gradient.optimizers import load_optimizer
from gradmarket.market.gradient.round_merge import MergedAnswer, Recipe
from gradmarket.market.gradient.round_update import build_model_state
from tests.kit.whole_merge import apply_merged_answer, merge_answers

PREFIX: Final = "private.attack."
PLAYS: Final = sized(((0, 9), (1, 0), (1, 4)), ((0, 9),))
"""Seed and liar; these holders have 184, 91 and 151 rows."""
MARK, TARGET = 4, 7
"""The backdoor: the first MARK pixels are white, and the label is TARGET."""
Answer = Mapping[str, np.ndarray]


def _like(honest: Answer, change: Callable[[str, np.ndarray], np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the answer with other gradients and the loss that it states."""
    return {name: values if name == "loss" else change(name, values) for name, values in honest.items()}


def _noise(honest: Answer, _last: Answer, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Returns normal noise as long as the honest answer."""
    drawn = _like(honest, lambda _, values: generator.standard_normal(values.shape))
    factor = _length(honest) / _length(drawn)
    return _like(drawn, lambda _, values: (values * factor).astype(np.float32))


def _length(answer: Answer) -> float:
    return math.sqrt(sum(float((values.astype(float) ** 2).sum()) for name, values in answer.items() if name != "loss"))


LIES: Final[dict[str, Callable[[Answer, Answer, np.random.Generator], dict[str, np.ndarray]]]] = {
    "noise": _noise,
    "sign_flip": lambda honest, _last, _: _like(honest, lambda _n, values: -values),
    "copy": lambda honest, _last, _: _like(honest, lambda _n, values: np.zeros_like(values)),
    "last_update": lambda honest, last, _: _like(honest, lambda name, values: last.get(name, np.zeros_like(values))),
    "backdoor": lambda honest, _last, _: dict(honest),
    "none": lambda honest, _last, _: dict(honest),
}
"""The lie, from the honest answer and the last round's update. `copy` sends the parameters back unchanged,
`last_update` the change of the round before; the answer with a backdoor is computed on marked rows."""


@dataclass(frozen=True)
class Outcome:
    """`fooled`: the part of the other digits that the backdoor's mark turns into its own."""

    accuracy: float
    fooled: float


def marked(rows: Rows) -> Rows:
    """Returns the rows with the backdoor's mark and its digit."""
    x, y = rows[0].copy(), np.full_like(rows[1], TARGET)
    x[:, :MARK] = 1.0
    return x, y


def _half_marked(rows: Rows) -> Rows:
    half, (x, y) = len(rows[1]) // 2, marked(rows)
    return np.concatenate([rows[0][:half], x[half:]]), np.concatenate([rows[1][:half], y[half:]])


def play(scene: Holders, lie: str, liar: int) -> Outcome:
    """Plays all rounds with one liar."""
    count, generator = len(scene.theirs), np.random.default_rng(scene.seed)
    rule, settings = configure_aggregator("mean", {}, count, count)
    sgd, weights = load_optimizer("sgd"), [count_weighed_rows(len(y), 1, CAP) for _, y in scene.theirs]
    move, scales = OptimizerStep(sgd, sgd.Settings()), compute_row_scales(weights)
    recipe = Recipe(scene.layout, load_codec("fp32"), rule, settings, BOUND, count)
    state, last = build_model_state(scene.layout, scene.first, move), dict[str, np.ndarray]()
    own = _half_marked(scene.theirs[liar]) if lie == "backdoor" else None
    for number in range(ROUNDS):
        round_answers = [scene.answer(state.tensors, number, one, own if one == liar else None) for one in range(count)]
        round_answers[liar] = LIES[lie](round_answers[liar], last, generator)
        answers = [
            MergedAnswer(scene.packed(one), b"", scale) for one, scale in zip(round_answers, scales, strict=True)
        ]
        last = merge_answers(recipe, answers)
        state = apply_merged_answer(scene.layout, state, last, move, 1.0)
    return _measure_left(scene, state.tensors)


def _measure_left(scene: Holders, parameters: Answer) -> Outcome:
    others = scene.own["y"] != TARGET
    x, y = marked((scene.own["x"][others], scene.own["y"][others]))
    fooled = scene.measured(parameters, {"x": x, "y": y}).values["accuracy"]
    return Outcome(scene.measured(parameters, scene.own).values["accuracy"], fooled)


def measure() -> Iterator[Figure]:
    scenes = {seed: Holders(seed) for seed, _ in PLAYS}
    played = {lie: [play(scenes[seed], lie, liar) for seed, liar in PLAYS] for lie in LIES}
    for lie, found in played.items():
        if lie != "none":
            pairs = zip(played["none"], found, strict=True)
            lost = 100 * mean(honest.accuracy - one.accuracy for honest, one in pairs)
            note = f"one liar of ten, weighted mean, norm bound {BOUND:g}"
            yield Figure(f"{PREFIX}{lie}.accuracy_lost", lost, "points", note=note)
    for lie in ("backdoor", "none"):
        fooled = mean(one.fooled for one in played[lie])
        yield Figure(f"{PREFIX}{lie}.fooled", fooled, "of the other digits", note="held-out rows with the mark")
