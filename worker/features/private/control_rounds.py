"""A holder's control variates (control_variates): the stored values of its last round, and its correction."""

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from gradmarket.market.errors import Refused, TensorsRefused
from gradmarket.market.features.private import control_variates
from gradmarket.market.features.private.control_variates import LastRound
from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.job import Publication
from gradmarket.market.step import LocalStep
from graphdoc import tensors
from graphdoc.encoding import Bytes

PARTS: Final = ("start", "correction", "change")


class RoundStore(Protocol):
    """Keeps the bytes of a job's two newest rounds."""

    def load(self, job: str, number: int) -> Bytes | None:
        """Returns the bytes kept of a round; None where none were."""

    def store_round(self, job: str, number: int, data: bytes) -> None:
        """Stores the bytes, and forgets all but the round before."""


class RoundsInMemory:
    """Keeps rounds as long as the process lives."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], bytes] = {}

    def load(self, job: str, number: int) -> Bytes | None:
        return self._kept.get((job, number))

    def store_round(self, job: str, number: int, data: bytes) -> None:
        old = {key: kept for key, kept in self._kept.items() if key[0] != job or key[1] == number - 1}
        self._kept = old | {(job, number): data}


@dataclass(frozen=True)
class ControlRound:
    """One round of one job. `step`, `outer`: its step, and the requester's rate."""

    store: RoundStore
    job: str
    number: int
    step: LocalStep
    outer: float

    def correction(self, state: Arrays, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        """Returns c - c_i by parameter, zeros in the first round. Raises Refused if the last round's values are
        lost."""
        start = {name: np.asarray(state[name]) for name in names}
        if self.number == 0:
            return {name: np.zeros_like(array) for name, array in start.items()}
        step = self.step
        return control_variates.compute_variate_correction(
            self._load_last_round(start), start, step.steps, step.optimizer.lr, self.outer
        )

    def answered(self, state: Arrays, correction: Arrays, change: Arrays) -> None:
        """Stores the values for the next round's correction: `change` is the gradient part of the answer as sent."""
        kept = LastRound({name: np.asarray(state[name]) for name in change}, dict(correction), dict(change))
        arrays = {f"{part}/{name}": array for part in PARTS for name, array in getattr(kept, part).items()}
        self.store.store_round(self.job, self.number, tensors.pack_tensors(arrays))

    def _load_last_round(self, start: Arrays) -> LastRound:
        data = self.store.load(self.job, self.number - 1)
        expected = {f"{part}/{name}": (array.shape, "float32") for part in PARTS for name, array in start.items()}
        try:
            arrays = tensors.unpack_tensors(data or b"", expected)
        except TensorsRefused as error:
            lost = f"the control variates of round {self.number - 1} of job {self.job} are not here"
            raise Refused(
                lost, "bring back the worker's folder, or have the job posted anew from its newest model"
            ) from error
        return LastRound(*({name: arrays[f"{part}/{name}"] for name in start} for part in PARTS))


def control_round(store: RoundStore, publication: Publication, number: int) -> ControlRound | None:
    """Returns the round, where the job has control variates."""
    spec = publication.spec
    if not isinstance(spec.step, LocalStep) or not spec.step.control_variates:
        return None
    return ControlRound(store, publication.job, number, spec.step, spec.optimizer.lr)
