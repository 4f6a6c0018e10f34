"""DistributedDataParallel over a slow link: `python -m benchmarks.rig.ddp_step FOLDER HOOK COUNT RANK`.

Two processes. The model has the parameters of the GPT of 10.8 million, and a recorded gradient in place of its own: a
backward pass is one product with it. Prints the seconds of each step beyond one without
communication, as far as it came.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import Any, Final

import torch
from torch import Tensor, distributed, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from benchmarks.rig.rounds import GPT_10M
from gradmarket.runner.architectures import gpt

WARM: Final = 3
"""Steps; powerSGD's are whole at first."""


BUCKETS: Final = {"powersgd": 100}
"""MiB; the default is 25. Two buckets of powerSGD send in no order over gloo, and end with a mismatch."""


class Recorded(nn.Module):
    """Its gradient is the recorded one, for any parameters."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.model = gpt.build(GPT_10M.arguments, GPT_10M.shape, GPT_10M.classes)
        generator = torch.Generator().manual_seed(seed)
        self.recorded = [1e-3 * torch.randn(each.shape, generator=generator) for each in self.model.parameters()]

    def forward(self) -> Tensor:
        pairs = zip(self.model.parameters(), self.recorded, strict=True)
        return torch.stack([(parameter * gradient).sum() for parameter, gradient in pairs]).sum()


def _power_sgd(model: DistributedDataParallel) -> None:
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


HOOKS: Final[Mapping[str, Callable[[DistributedDataParallel], Any]]] = {
    "fp16": lambda model: model.register_comm_hook(None, default_hooks.fp16_compress_hook),
    "powersgd": _power_sgd,
}


def steps(folder: Path, hook: str, count: int, rank: int) -> list[float]:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder / 'meeting'}", rank=rank, world_size=2)
    model = DistributedDataParallel(Recorded(rank), bucket_cap_mb=BUCKETS.get(hook))
    if hook in HOOKS:
        HOOKS[hook](model)
    alone = median(_seconds(model, alone=True) for _ in range(WARM))
    taken = []
    try:
        for _ in range(WARM + count):
            taken.append(_seconds(model) - alone)
    except RuntimeError as error:  # of gloo, where a connection broke: the process group is of no more use
        print(error, file=sys.stderr)
    return taken[WARM:]


def _seconds(model: DistributedDataParallel, alone: bool = False) -> float:
    distributed.barrier()
    began = time.perf_counter()
    with model.no_sync() if alone else nullcontext():
        model().backward()
    taken = time.perf_counter() - began
    model.zero_grad()
    return taken


if __name__ == "__main__":
    print(json.dumps(steps(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
