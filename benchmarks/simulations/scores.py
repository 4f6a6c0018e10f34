"""Scores wrong gradients on their tasks' rows: how often one passes `loss_change`, and how soon that convicts.

Losses and gradients are passed in: an auditor's, whose own gradients are the trusted runs, and an honest worker's in
another determinism class. Liars compute in the auditor's class.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

import numpy as np

from benchmarks.simulations import lies
from benchmarks.simulations.lies import Answer, Gradient, Question
from gradmarket.market.features.loss_change import (
    RUNS,
    WINDOW,
    add_score,
    compute_change,
    compute_score_weight,
    decide_change_verdict,
    honest_share,
    move_along_gradient,
)
from gradmarket.market.gradient.arrays import Vector
from gradmarket.market.terms import ChangeVerdict

AUDITS: Final = 60
"""Audits of one worker in one sequence."""
TRUSTED: Final = "trusted"
HONEST: Final = "honest"


@dataclass(frozen=True)
class Trial:
    """One task. `others`: draws of other rows; `stray`: the rows of another task, at the same parameters."""

    own: Question
    others: tuple[Question, ...]
    stray: Question


Lie = Callable[[Trial, Answer], Gradient]
Losses = Callable[[Mapping[str, Vector], Question], float]
"""Returns the mean loss at these parameters on a question's rows."""


def _of_the_task(lie: lies.Lie) -> Lie:
    return lambda trial, answer: lie(trial.own, answer)


def other_rows(trial: Trial, answer: Answer) -> Gradient:
    """Returns the gradient of another task."""
    return answer(trial.stray)


def zero(trial: Trial, answer: Answer) -> Gradient:
    return {name: np.zeros_like(tensor) for name, tensor in answer(trial.own).items()}


def quarter(trial: Trial, answer: Answer) -> Gradient:
    """Uses only the first quarter of the rows, repeated."""
    rows = np.arange(len(trial.own.y)) % (len(trial.own.y) // 4)
    return answer(replace(trial.own, x=trial.own.x[rows], y=trial.own.y[rows]))


LIES: Final[Mapping[str, Lie]] = {
    "noise": _of_the_task(lies.noise),
    "zero": zero,
    "sign flipped": _of_the_task(lies.sign_flipped),
    "another task's rows": other_rows,
    "a quarter of the rows": quarter,
    "one row dropped": _of_the_task(lies.sample_dropped),
    "stale parameters": _of_the_task(lies.stale),
    "scaled by 1 %": _of_the_task(lies.scaled),
    "1 % backdoor": _of_the_task(lies.backdoor),
}

Passed = Mapping[str, Sequence[bool]]
"""For each kind of answer: whether its score passed, task by task."""


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """One kind of answer. `audits`: the median number until conviction, None if fewer than half are convicted."""

    name: str
    scores: int
    passed: float
    sequences: int
    convicted: float
    audits: float | None


def scores(trials: Iterable[Trial], auditor: Answer, worker: Answer, losses: Losses) -> Passed:
    """Scores the trusted runs, the honest worker and every lie."""
    passed: dict[str, list[bool]] = {}
    for trial in trials:
        for name, passes in _scored(trial, auditor, worker, losses):
            passed.setdefault(name, []).append(passes)
    return passed


def _scored(trial: Trial, auditor: Answer, worker: Answer, losses: Losses) -> Iterator[tuple[str, bool]]:
    draws, state = (trial.own, *trial.others), trial.own.state
    before = [losses(state, draw) for draw in draws]
    answers = {TRUSTED: auditor(trial.own), HONEST: worker(trial.own)}
    for name, gradient in (answers | {name: lie(trial, auditor) for name, lie in LIES.items()}).items():
        moved = move_along_gradient(state, gradient)
        yield name, compute_change(before, [losses(moved, draw) for draw in draws]).passes


def lines(found: Passed) -> Iterator[ScoreRow]:
    """Yields how often each kind passes, and how sequences of AUDITS scores end, one starting at every task."""
    honest = _honest_shares(found[TRUSTED])
    for name, passed in found.items():
        starts = range(RUNS, len(passed) - AUDITS + 1)
        if name != TRUSTED:
            ends = [_convicted_after(passed[at : at + AUDITS], honest[at : at + AUDITS]) for at in starts]
            caught = sorted(end for end in ends if end is not None)
            often = len(caught) / len(ends)
            rank = median([end or AUDITS + 1 for end in ends]) if often > 0.5 else None
            yield ScoreRow(name, len(passed), float(np.mean(passed)), len(ends), often, rank)


def _honest_shares(trusted: Sequence[bool]) -> list[float | None]:
    """Returns, for each task, the honest share according to the trusted runs up to and including it."""
    windows = (trusted[max(0, end - WINDOW) : end] for end in range(1, len(trusted) + 1))
    return [honest_share(sum(window), len(window)) for window in windows]


def _convicted_after(passed: Sequence[bool], honest: Sequence[float | None]) -> int | None:
    """Returns the number of audits until these scores convict, or None."""
    total = 0.0
    for number, (passes, share) in enumerate(zip(passed, honest, strict=True), start=1):
        total = add_score(total, compute_score_weight(passes, share))
        if decide_change_verdict(total) == ChangeVerdict.CONVICTED:
            return number
    return None
