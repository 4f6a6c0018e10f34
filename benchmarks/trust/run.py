"""One training run under one attack and one defence, a pure function of its seed."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

import numpy as np

from benchmarks.trust.attacks import ATTACKS, DELAY, LATE, LATE_ROUNDS, PATIENT, QUIET, Scene
from benchmarks.trust.defences import TRUSTED, Crew, Defence, believed, voted
from benchmarks.trust.workloads import Trained
from gradmarket.market.gradient.arrays import Tensors, Vector
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.inspection import Diverged, Usable, inspect_shards
from gradmarket.market.gradient.one_step import OptimizerStep
from gradmarket.market.gradient.optimizers import load_optimizer
from gradmarket.market.gradient.payload import encode_payload, unflatten_vector
from gradmarket.market.gradient.round_merge import MergedAnswer, Recipe
from gradmarket.market.gradient.round_update import ModelState, build_model_state
from gradmarket.market.terms import Plan
from tests.kit.whole_merge import apply_merged_answer, flatten_tensors, merge_answers

FP32: Final = load_codec("fp32")
SEED: Final = b"task"


@dataclass(frozen=True)
class Setting:
    """The paper's: 16 workers of which 7 are hostile from round `start` on; as many tasks a round as workers."""

    workers: int = 16
    hostile: int = 7
    start: int = 10
    norm_bound: float = TRUSTED.norm_bound
    unbounded: float = 1e6
    """The norm bound of a defence that has none."""
    tries: int = 3
    """Runs with other draws of workers and audits, where a defence does rounds again; the worst of them counts."""


class Run:
    """The model at some round, with the history that the attacks use."""

    def __init__(self, trained: Trained, defence: Defence, setting: Setting) -> None:
        self.trained, self.defence, self.setting = trained, defence, setting
        rule = load_optimizer(trained.workload.optimizer)
        self._move = OptimizerStep(rule, rule.Settings(**trained.workload.settings))
        bound = setting.norm_bound if defence.plan else setting.unbounded
        self._recipe = Recipe(trained.layout, FP32, *defence.rule(), bound, setting.workers)
        self.models = [build_model_state(trained.layout, trained.parameters, self._move)]
        self._lied = -1
        self._train(setting.start, None)
        self._start = list(self.models)

    def accuracy(self, attack: str | None) -> float:
        """In points, after the workload's rounds; `attack` None: nobody is hostile."""
        self.models, self._lied = list(self._start), -1
        self._train(self.trained.workload.rounds, attack)
        return self.trained.accuracy(self.models[-1].tensors)

    def _train(self, rounds: int, attack: str | None) -> None:
        shared = Crew(self.setting.workers, self.setting.hostile, Random(0))
        while len(self.models) <= rounds:
            self.models.append(self._next(shared, attack))

    def _next(self, shared: Crew, attack: str | None) -> ModelState:
        number, model = len(self.models) - 1, self.models[-1]
        honest = self._honest(model, number)
        accepted = (self._accepted(shared, attack, task, honest) for task in range(len(honest)))
        usable = [answer for answer in accepted if answer is not None and self._is_usable(answer)]
        return model if len(usable) < self._recipe.settings.least else self._merged(model, usable)

    def _honest(self, model: ModelState, number: int) -> Sequence[Tensors]:
        return self.trained.round(model.tensors, number, self.setting.workers)

    def _merged(self, model: ModelState, answers: Sequence[MergedAnswer]) -> ModelState:
        merged = merge_answers(self._recipe, answers)
        counters = tuple(name for name in model.tensors if name.endswith("num_batches_tracked"))
        return apply_merged_answer(self.trained.layout, model, merged, self._move, self.trained.workload.lr, counters)

    def _accepted(self, shared: Crew, attack: str | None, task: int, honest: Sequence[Tensors]) -> MergedAnswer | None:
        attack = self._restrain(attack)
        is_honest = attack is None or self._is_honest(shared, self.defence.plan, task, attack in QUIET)
        return None if is_honest is None else self._answer(task, honest, None if is_honest else attack)

    def _restrain(self, attack: str | None) -> str | None:
        """Returns None where the attack waits: for the next round, or for the last ones."""
        number = len(self.models) - 1
        early = number < self.trained.workload.rounds - LATE_ROUNDS
        return None if (attack == PATIENT and self._lied == number) or (attack == LATE and early) else attack

    def _answer(self, task: int, honest: Sequence[Tensors], attack: str | None) -> MergedAnswer:
        tensors = honest[task]
        if attack is not None:
            self._lied = len(self.models) - 1
            flat = flatten_tensors(self.trained.layout, tensors)
            flat[self.trained.layout.gradient] = ATTACKS[attack](self._scene(task, honest))
            tensors = unflatten_vector(self.trained.layout, flat)
        return MergedAnswer(encode_payload(self.trained.layout, tensors, FP32, SEED), SEED)

    def _is_honest(self, shared: Crew, plan: Plan | None, task: int, quiet: bool) -> bool | None:
        return believed(shared, task) if plan is None else voted(shared, plan, quiet)

    def _is_usable(self, answer: MergedAnswer) -> bool:
        return isinstance(self._inspect(answer), Usable)

    def _norm(self, answer: MergedAnswer) -> float:
        return self._inspect(answer).norm

    def _inspect(self, answer: MergedAnswer) -> Usable | Diverged:
        shards = ((0, np.frombuffer(answer.data, np.float32)),)
        return inspect_shards(self.trained.layout, shards, self._recipe.norm_bound)

    def _scene(self, task: int, honest: Sequence[Tensors]) -> Scene:
        number = len(self.models) - 1
        old = self.models[max(0, number - DELAY)].tensors
        return Scene(
            honest=self._gradient(honest[task]),
            round_honest=np.stack([self._gradient(answer) for answer in honest]),
            flipped=lambda: self._gradient(self.trained.answer(self.models[-1].tensors, number, task, flipped=True)),
            delayed=lambda: self._gradient(self.trained.answer(old, number, task)),
            norm_bound=self.setting.norm_bound,
            workers=self.setting.workers,
            hostile=self.setting.hostile,
            round=number,
            task=task,
        )

    def _gradient(self, answer: Tensors) -> Vector:
        return flatten_tensors(self.trained.layout, answer)[self.trained.layout.gradient]
