"""Holders' gain by cheats over honest work, where answers are paid by worth (`private.worth.*`).

The ten-holder example's split and local steps on a perceptron in numpy, in 30 rounds, measured by group_worth as
the service does. A ratio is of a holder's mean pay in three honest plays, of all its wallets together; of a holder
without rows it is of the others' mean pay. Rows are split by each of the ten in turn.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from statistics import mean
from typing import Final

import numpy as np

from benchmarks.figure import Figure
from benchmarks.size import sized
from examples.holders import LOCAL, Rows, digits
from gradmarket.market.features.private import shapley
from gradmarket.market.features.private.group_worth import GroupSteps
from gradmarket.market.features.private.holder_rows import compute_pot_weight, compute_row_scales, count_weighed_rows
from gradmarket.market.gradient import inspection
from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.payload_layout import Layout, LayoutEntry
from gradmarket.market.gradient.round_merge import MergedAnswer
from gradmarket.market.step import LocalStep
from gradmarket.market.terms import Hash, Units

PREFIX: Final = "private.worth."
ROUNDS, DRAWS, CAP, BOUND = sized(30, 3), 1, 200, 1e6
FLOOR, CEILING = Units(25), Units(1000)
STEP: Final = LocalStep.model_validate(LOCAL)
SHAPES: Final = {"a": (64, 64), "b": (64,), "c": (10, 64), "d": (10,)}
LAYOUT: Final = Layout((LayoutEntry("loss", (), "loss"), *(LayoutEntry(*one, "gradient") for one in SHAPES.items())))
HOLDERS: Final = sized((0, 8), (0,))
"""The holders that cheat, one a play: they have 115 and 91 rows."""
EVERY: Final = sized(tuple(range(10)), (0,))
HONEST: Final = sized((0, 1, 2), (0,))
"""Seeds of the honest plays: a holder's pay differs by a tenth between them."""
AT_ONCE: Final = sized(2, 1)
"""Plays beside each other, each of one thread."""
Model = dict[str, np.ndarray]


@dataclass
class Play:
    """`pay` by wallet; those of the cheat are `own`."""

    pay: list[float]
    own: tuple[int, ...]


def _scores(model: Mapping[str, np.ndarray], x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    hidden = np.maximum(x @ model["a"].T + model["b"], 0.0)
    return hidden, hidden @ model["c"].T + model["d"]


def _loss(model: Mapping[str, np.ndarray], rows: Rows) -> float:
    scores = _scores(model, rows[0])[1]
    scores = scores - scores.max(1, keepdims=True)
    return float(np.mean(np.log(np.exp(scores).sum(1)) - scores[np.arange(len(rows[1])), rows[1]]))


def _gradient(model: Model, x: np.ndarray, y: np.ndarray) -> Model:
    hidden, scores = _scores(model, x)
    odds: np.ndarray = np.exp(scores - scores.max(1, keepdims=True))
    odds /= odds.sum(1, keepdims=True)
    odds[np.arange(len(y)), y] -= 1.0
    odds /= len(y)
    back = (odds @ model["c"]) * (hidden > 0)
    return {"a": back.T @ x, "b": back.sum(0), "c": odds.T @ hidden, "d": odds.sum(0)}


def _answer(start: Model, rows: Rows, generator: np.random.Generator) -> Model:
    """Returns the change by the example's local steps."""
    model = {name: values.copy() for name, values in start.items()}
    for _ in range(STEP.steps):
        drawn = generator.permutation(len(rows[1]))[: STEP.rows]
        for name, slope in _gradient(model, rows[0][drawn], rows[1][drawn]).items():
            model[name] -= STEP.optimizer.lr * slope
    return {name: start[name] - model[name] for name in start}


def _scaled(answer: Model, by: float) -> Model:
    return {name: by * values for name, values in answer.items()}


def _noise(answer: Model, generator: np.random.Generator) -> Model:
    drawn = {name: np.asarray(generator.standard_normal(values.shape)) for name, values in answer.items()}
    return _scaled(drawn, _length(answer) / _length(drawn))


def _length(answer: Model) -> float:
    return float(np.sqrt(sum(np.square(values).sum() for values in answer.values())))


def _changed(cheat: str, honest: Model, updates: list[Model], generator: np.random.Generator) -> Model:
    """Returns the cheat's answer: `replay.3` the update of three rounds ago, nothing before there is one."""
    if cheat.startswith("replay."):
        ago = int(cheat[-1])
        return updates[-ago] if len(updates) >= ago else _scaled(honest, 0.0)
    changes = {"half": lambda: _scaled(honest, 0.5), "double": lambda: _scaled(honest, 2.0)}
    changes |= {"sign": lambda: _scaled(honest, -1.0), "noise": lambda: _noise(honest, generator)}
    return changes[cheat]() if cheat in changes else honest


def play(cheat: str, liar: int, own: Rows, theirs: list[Rows], seed: int = 0) -> Play:
    generator, held, wallets = np.random.default_rng(seed), list(theirs), [liar]
    model = {name: np.asarray(generator.uniform(-0.125, 0.125, shape)) for name, shape in SHAPES.items()}
    if cheat == "split":
        x, y = theirs[liar]
        half, order = len(y) // 2, generator.permutation(len(y))
        held[liar] = x[order[:half]], y[order[:half]]
        held.append((x[order[half:]], y[order[half:]]))
        wallets.append(len(theirs))
    elif cheat == "copy":
        held.append(theirs[liar])
        wallets.append(len(theirs))
    count, updates, past = len(held), list[Model](), list[Arrays]()
    weights = [count_weighed_rows(len(y), 1, CAP) for _, y in held]
    if cheat == "overstate":
        weights[liar] = min(CAP, 2 * weights[liar])
    scales, weight = compute_row_scales(weights), compute_pot_weight(weights, CAP)
    pay = [0.0] * count
    for number in range(ROUNDS):
        answers = [_answer(model, rows, generator) for rows in held]
        answers[liar] = _changed(cheat, answers[liar], updates, generator)
        before = {name: values.astype(np.float32) for name, values in model.items()}
        packed: list[dict[str, np.ndarray]] = [
            {"loss": np.zeros((), np.float32), **{name: values.astype(np.float32) for name, values in one.items()}}
            for one in answers
        ]
        sent = [
            MergedAnswer(inspection.encode_bounded_payload(LAYOUT, one, load_codec("fp32"), b"", (), BOUND), b"", scale)
            for one, scale in zip(packed, scales, strict=True)
        ]
        steps = GroupSteps(LAYOUT, load_codec("fp32"), before, sent, 1.0, past)
        drawn = shapley.draw_orders(count, DRAWS, Hash(number.to_bytes(32, "big")))
        for one, share in enumerate(steps.worths(drawn, lambda parameters: _loss(parameters, own)).shares):
            pay[one] += FLOOR + shapley.compute_worth_pay(share, weight, FLOOR, CEILING)
        update: Model = {
            name: np.sum([scale * one[name] for one, scale in zip(answers, scales, strict=True)], 0) / count
            for name in SHAPES
        }
        model = {name: model[name] - update[name] for name in SHAPES}
        past.insert(0, before)
        updates.append(update)
    return Play(pay, tuple(wallets))


WITH_ROWS: Final = ("half", "double", "copy", "overstate")
WITHOUT_ROWS: Final = ("replay.1", "replay.2", "replay.3", "replay.4", "noise", "sign")


def measure() -> Iterator[Figure]:
    theirs, own = digits()
    with ProcessPoolExecutor(AT_ONCE) as pool:
        asked = [(cheat, liar) for cheat in (*WITH_ROWS, *WITHOUT_ROWS) for liar in HOLDERS]
        plays = {key: pool.submit(play, *key, own, theirs) for key in asked}
        plays |= {("split", liar): pool.submit(play, "split", liar, own, theirs, 1) for liar in EVERY}
        runs = [pool.submit(play, "honest", 0, own, theirs, seed) for seed in HONEST]
        honest = [mean(paid) for paid in zip(*(run.result().pay for run in runs), strict=True)]
        played = {key: one.result() for key, one in plays.items()}
    yield Figure(f"{PREFIX}least", min(honest) / mean(honest), "of the mean pay", note="of ten honest holders")
    yield Figure(f"{PREFIX}most", max(honest) / mean(honest), "of the mean pay", note="of ten honest holders")

    def gained(cheat: str, liars: tuple[int, ...]) -> list[float]:
        return [sum(played[cheat, one].pay[wallet] for wallet in played[cheat, one].own) / honest[one] for one in liars]

    for cheat in WITH_ROWS:
        paid, target = gained(cheat, HOLDERS), "" if cheat == "overstate" else "<= 1.05"
        yield Figure(f"{PREFIX}{cheat}", max(paid), "of its honest pay", target=target, note=_noted(paid))
    split = gained("split", EVERY)
    whole = sum(ratio * honest[one] for ratio, one in zip(split, EVERY, strict=True)) / sum(
        honest[one] for one in EVERY
    )
    yield Figure(f"{PREFIX}split", whole, "of their honest pay", target="<= 1.1", note=_noted(split))
    yield Figure(f"{PREFIX}split.most", max(split), "of its honest pay", note="of the ten, each in a play of its own")
    kept = [played["copy", liar].pay[liar] / honest[liar] for liar in HOLDERS]
    yield Figure(f"{PREFIX}copied", min(kept), "of its honest pay", note="what is left to the copied holder")
    for cheat in WITHOUT_ROWS:
        paid = [
            played[cheat, liar].pay[liar] / mean(pay for one, pay in enumerate(played[cheat, liar].pay) if one != liar)
            for liar in HOLDERS
        ]
        yield Figure(f"{PREFIX}{cheat}", max(paid), "of the others' mean pay", target="<= 0.2", note=_noted(paid))


def _noted(paid: list[float]) -> str:
    return "holders: " + ", ".join(f"{one:.2f}" for one in paid)
