"""The peer of a round: two processes of torch over gloo that trust each other, `python -m benchmarks.rig.ddp …`.

Their gradients are recorded too. A round adds them up in buckets of 25 MiB, as DistributedDataParallel does, divides,
and takes the same optimizer step in both processes; nothing is checked, kept or paid.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import distributed

BUCKET = 25 * 2**18
"""Elements."""
WARM = 2


def rounds(elements: int, optimizer: str, count: int) -> list[float]:
    """Returns the seconds of `count` rounds of two processes."""
    with tempfile.TemporaryDirectory() as folder:
        meeting = str(Path(folder) / "meeting")
        command = [sys.executable, "-m", "benchmarks.rig.ddp", meeting, str(elements), optimizer, str(count)]
        here = os.environ | {"GLOO_SOCKET_IFNAME": "lo"}
        both = [
            subprocess.Popen([*command, str(rank)], env=here, stdout=subprocess.PIPE, text=True) for rank in range(2)
        ]
        outputs = [process.communicate()[0] for process in both]
    if any(process.returncode for process in both):
        raise RuntimeError("a process of the peer failed")
    return [float(seconds) for seconds in json.loads(outputs[0])]


def _one(meeting: str, elements: int, name: str, count: int, rank: int) -> list[float]:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    generator = torch.Generator().manual_seed(rank)
    recorded = torch.randn(elements, generator=generator) * 1e-3
    model = [torch.zeros(min(BUCKET, elements - start)) for start in range(0, elements, BUCKET)]
    optimizer = torch.optim.AdamW(model) if name == "adamw" else torch.optim.SGD(model, lr=0.1, momentum=0.9)
    parts, seconds = torch.split(recorded, BUCKET), []
    for _ in range(WARM + count):
        distributed.barrier()
        began = time.perf_counter()
        gradients = [part.clone() for part in parts]
        for waiting in [distributed.all_reduce(gradient, async_op=True) for gradient in gradients]:
            waiting.wait()
        for bucket, gradient in zip(model, gradients, strict=True):
            bucket.grad = gradient.div_(2)
        optimizer.step()
        distributed.barrier()
        seconds.append(time.perf_counter() - began)
    distributed.destroy_process_group()
    return seconds[WARM:]


if __name__ == "__main__":
    print(json.dumps(_one(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))))
