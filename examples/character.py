"""A character model of Python trained on the market: a small GPT on the standard library's own sources.

    python examples/character.py [ROUNDS]

with a service and three workers running (see the README). Local steps: each task takes 20 inner steps of AdamW, the
service's Nesterov takes what comes of them, and matrix products are in bfloat16. The last line is the held-out loss.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gradmarket import Market, TrainingJob
from gradmarket.runner.architectures import gpt

LENGTH = 32
INNER = {"name": "adamw", "lr": 3e-3, "clip": 1.0}


def sources() -> str:
    """Of the library's `json` package: ASCII, about 40 kB, and on every machine."""
    return "".join(path.read_text() for path in sorted(Path(json.__file__).parent.glob("*.py")))


def windows(text: str, length: int = LENGTH) -> tuple[np.ndarray, np.ndarray, int]:
    """(int64[rows, length] characters, the same moved on by one, how many characters there are)."""
    known = sorted(set(text))
    codes = np.searchsorted(known, list(text)).astype(np.int64)
    rows = (len(codes) - 1) // length
    x, y = (codes[start : start + rows * length].reshape(rows, length) for start in (0, 1))
    return x, y, len(known)


def main(rounds: int, steps: int = 20, **fields: Any) -> TrainingJob:
    """`fields` are further ones of the job."""
    torch.manual_seed(0)
    x, y, characters = windows(sources())
    model = gpt.build({"depth": 2, "width": 64, "heads": 4}, (LENGTH,), characters)
    with Market() as market:
        job = market.train(
            model,
            gpt.OBJECTIVE,
            (torch.from_numpy(x), torch.from_numpy(y)),
            optimizer={"name": "nesterov", "lr": 0.7, "momentum": 0.6},
            step={"kind": "local", "steps": steps, "rows": 32, "optimizer": INNER},
            precision="bf16",
            uplink={"codec": "bf16"},
            rounds=rounds,
            price="0.01 GRAD",
            **fields,
        )
        job.watch()
        job.load_into(model)
        print(f"held-out loss {job.metrics['loss']:.3f}, a guess {np.log(characters):.3f}")
    return job


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
