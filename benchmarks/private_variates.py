"""SCAFFOLD's control variates on the ten-holder example, beside the same rounds without: loss and accuracy.

All is as in `make bench ONLY=private`, but answers weigh alike. The loss is that on the requester's rows.
"""

from collections.abc import Iterator
from statistics import mean
from typing import Final

import numpy as np

from benchmarks.figure import Figure
from benchmarks.private import ROUNDS, SEEDS, Holders
from examples.holders import LOCAL
from gradmarket.market.gradient.arrays import Arrays
from gradmarket.runner.drawn_rows import prefix_corrections
from worker.features.private.control_rounds import ControlRound, RoundsInMemory

PREFIX = "private.variates."
VARIATES: Final = {**LOCAL, "control_variates": True}


def _measured(scene: Holders) -> list[tuple[float, float]]:
    """Returns loss and accuracy after each round."""
    state, names = dict(scene.first), [entry.name for entry in scene.layout.of("gradient")]
    stores, shown = [RoundsInMemory() for _ in scene.theirs], []
    for number in range(ROUNDS):
        changes = [_change(scene, state, number, holder, store) for holder, store in enumerate(stores)]
        state |= {name: state[name] - np.mean([one[name] for one in changes], 0) for name in names}
        metrics = scene.measured(state, scene.own)
        shown.append((metrics.loss, metrics.values["accuracy"]))
    return shown


def _change(scene: Holders, state: Arrays, number: int, holder: int, store: RoundsInMemory) -> Arrays:
    names = tuple(entry.name for entry in scene.layout.of("gradient"))
    if not scene.step.control_variates:
        return scene.answer(state, number, holder)
    control = ControlRound(store, "job", number, scene.step, 1.0)
    correction = control.correction(state, names)
    answer = scene.answer({**state, **prefix_corrections(correction)}, number, holder)
    change = {name: answer[name] for name in names}
    control.answered(state, correction, change)
    return change


def measure() -> Iterator[Figure]:
    own, other = ([_measured(Holders(seed, step)) for seed in SEEDS] for step in (VARIATES, LOCAL))
    early = min(10, ROUNDS)
    for place, name, unit in ((0, "loss", "on the requester's rows"), (1, "accuracy", "of the requester's rows")):
        found, without = (mean(one[-1][place] for one in runs) for runs in (own, other))
        note = f"after {ROUNDS} rounds; after {early} {mean(one[early - 1][place] for one in own):.3f}"
        note += f", without them {mean(one[early - 1][place] for one in other):.3f}"
        yield Figure(f"{PREFIX}{name}", found, unit, "the same without", found / without, note=note)
        yield Figure(f"{PREFIX}{name}_without", without, unit)
