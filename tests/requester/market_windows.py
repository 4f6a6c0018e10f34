"""Simulated workers whose tasks are local steps in windows; a tiny inner step stands in for the model's."""

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from gradmarket.compute.task_run import TaskRun
from gradmarket.market.gradient import payload
from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.step import LocalStep, Step, WindowStep
from gradmarket.market.terms import Digest
from gradmarket.market.wire.audit_messages import WindowTask
from gradmarket.market.wire.poll import OfferFields, digest_of
from gradmarket.runner import window_state
from graphdoc import tensors
from requester.features.windows import state_upload
from tests.requester.market_workers import SimWorker

STEPS, WINDOW = 7, 2
LEAVES = 3
LOCAL: dict[str, Any] = {
    "kind": "local",
    "steps": STEPS,
    "rows": 1,
    "window": WINDOW,
    "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.5},
}


def inner(state: Arrays, _batch: Arrays, seed: bytes, step: Step) -> dict[str, np.ndarray]:
    """Moves parameters, buffers and memory by numbers that follow from the seed and the inner step."""
    assert isinstance(step, WindowStep)
    moved = {key: array for key, array in state.items() if key in ("w", "m") or key.startswith(window_state.MEMORY)}
    for number in range(step.begins, step.ends):
        noise = np.random.default_rng([*seed[:8], number])
        moved = {key: moved[key] * np.float32(0.5) + noise.random(moved[key].shape, np.float32) for key in moved}
    losses = np.arange(step.begins, step.ends, dtype=np.float32)
    return {key: np.asarray(array, np.float32) for key, array in moved.items()} | {window_state.LOSSES: losses}


class WindowWorker(SimWorker):
    """Computes window by window, and brings the states that it is asked for."""

    skips: ClassVar[int | None] = None
    """The window that it leaves out: it commits to the state before it as if that were the one after."""
    serves: ClassVar[bool] = True

    def compute(self, offer: OfferFields) -> bytes:
        tensors_, leaves = self._task(offer).whole(lambda _digest, _state: None)
        return self._encoded(tensors_, offer, leaves)

    def replay(self, offer: OfferFields, asked: WindowTask) -> bytes:
        """As an auditor does."""
        tensors_, leaves = self._task(offer).replay(asked.window, asked.leaves, self.market.context.blobs.read)
        return self._encoded(tensors_, offer, leaves)

    def finish_turn(self) -> None:
        super().finish_turn()
        if self.serves:
            self.serve()

    def serve(self) -> int:
        """Uploads the requested states; returns their number."""
        asked = state_upload.list_asked_states(self.market.context, self.address).states
        for request in asked:
            self.bring_state(request.digest, self.state(request.replica, request.digest))
        return len(asked)

    def state(self, replica: str, digest: Digest) -> bytes:
        (held,) = (held for held in self.held.values() if held.lease.replica == replica)
        return self._task(held.lease.offer).state_at(digest)

    def bring_state(self, digest: Digest, state: bytes) -> None:
        """As the HTTP route takes it: first the request, then the bytes."""
        context = self.market.context
        want = state_upload.load_wanted_state(context, self.address, digest)
        with context.blobs.receive() as incoming:
            incoming.write(state)
            state_upload.store_state(context, want, incoming)

    def _encoded(self, answer: Arrays, offer: OfferFields, leaves: Any) -> bytes:
        return payload.encode_payload(self.task_layout, dict(answer), load_codec("fp32"), offer.seed, leaves)

    @property
    def task_layout(self) -> Any:
        return replace(self.answer_layout, leaves=LEAVES)

    def _task(self, offer: OfferFields) -> TaskRun:
        state = tensors.unpack_tensors(self.market.context.blobs.read(digest_of(offer.parameters)))
        rows = {"x": np.zeros((STEPS, 1), np.float32)}
        return TaskRun(self._moved, self.task_layout, LocalStep(**LOCAL), state, rows, offer.seed)

    def _moved(self, state: Arrays, batch: Arrays, seed: bytes, step: Step) -> dict[str, np.ndarray]:
        honest = inner(state, batch, seed, step)
        if self.skips is None or not isinstance(step, WindowStep) or step.begins != self.skips * WINDOW:
            return honest
        return {key: array if key == window_state.LOSSES else state[key] for key, array in honest.items()}


def skipping(window: int) -> type[WindowWorker]:
    return type(f"Skipping{window}", (WindowWorker,), {"skips": window})


class Silent(WindowWorker):
    serves = False
