"""Ten holders with unevenly split digits train one model, and no row leaves its holder.

    python examples/holders.py [ROUNDS [HOLDERS]] [--secure]

with a service running and no other worker (see the README). It splits scikit-learn's digits among ten folders by
Dirichlet label skew (Hsu, Qi, Brown 2019), so that most holders lack some digits, starts a worker beside each and posts
a private job. The last line is the trained model's accuracy on rows of the requester's own. With --secure the requester
sees the sum of each round's answers and no answer (docs/secure_aggregation.md).
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from gradmarket import Market, TrainingJob
from gradmarket.data.pack import Cut, pack_dataset, write_dataset
from gradmarket.endpoint import find_endpoint
from worker import wallet

HOLDERS, ALPHA, LEAST = 10, 0.5, 32
LOCAL = {"kind": "local", "rows": 16, "steps": 10, "optimizer": {"name": "sgd", "lr": 0.2}}
Rows = tuple[np.ndarray, np.ndarray]


def digits(holders: int = HOLDERS) -> tuple[list[Rows], Rows]:
    """Returns the holders' rows, and the requester's: a fifth of all, drawn at random."""
    generator = np.random.default_rng(0)
    x, y = load_digits(return_X_y=True)
    x, order = (x / 16).astype(np.float32), generator.permutation(len(y))
    own, theirs = order[: len(y) // 5], order[len(y) // 5 :]
    while True:
        parts: list[list[int]] = [[] for _ in range(holders)]
        for label in range(10):
            rows = theirs[y[theirs] == label]
            cuts = (np.cumsum(generator.dirichlet([ALPHA] * holders)) * len(rows)).astype(int)[:-1]
            for part, some in zip(parts, np.split(rows, cuts), strict=True):
                part += some.tolist()
        if min(map(len, parts)) >= LEAST:
            return [(x[part], y[part]) for part in parts], (x[own], y[own])


@contextmanager
def workers(folder: Path, market: str, job: str, count: int) -> Iterator[None]:
    """Starts a worker beside the rows of each holder, and ends them."""
    started = []
    try:
        for number in range(count):
            place = folder / f"holder-{number}"
            command = [sys.executable, "-m", "gradmarket", "worker", "run", "--market", market]
            command += ["--data", str(place), "--dataset", str(place / "rows"), "--for", job]
            with (place / "log").open("wb") as log:
                started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        yield
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait()


def post(
    market: Market, model: nn.Module, folder: Path, rounds: int, holders: int, secure: bool, **fields: Any
) -> TrainingJob:
    """Writes the holders' folders and posts the job. `secure`: of five holders one may drop out of a round."""
    theirs, own = digits(holders)
    addresses = []
    for number, (x, y) in enumerate(theirs):
        place = folder / f"holder-{number}"
        write_dataset(pack_dataset({"x": x, "y": y}, Cut(rows=10**6)), place / "rows")
        addresses.append(wallet.load_or_create(place, None).address)
    private: dict[str, Any] = {"holders": addresses, "least_rows": LEAST}
    if secure:
        private["secure_aggregation"] = {"may_collude": 1, "may_drop": holders // 5}
        fields["min_tasks"] = holders - holders // 5
    else:
        private["rows_cap"] = 200
    return market.train(
        model,
        nn.functional.cross_entropy,
        own,
        private=private,
        optimizer={"name": "sgd", "lr": 1.0},
        rounds=rounds,
        tasks_per_round=holders,
        norm_bound=2.0,
        **{"price": "0.01 GRAD", "step": LOCAL, **fields},
    )


def main(
    rounds: int, holders: int = HOLDERS, keep: Path | None = None, secure: bool = False, **fields: Any
) -> TrainingJob:
    """`fields` are further ones of the job; `keep` is where the holders' folders stay."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    with tempfile.TemporaryDirectory() as temporary, Market() as market:
        folder = keep or Path(temporary)
        job = post(market, model, folder, rounds, holders, secure, **fields)
        with workers(folder, find_endpoint().url, job.id, holders):
            job.watch()
        job.load_into(model)
        print(f"held-out accuracy {job.metrics['accuracy']:.3f}")
    return job


if __name__ == "__main__":
    asked = [word for word in sys.argv[1:] if word != "--secure"]
    rounds, holders = int(asked[0]) if asked else 30, int(asked[1]) if asked[1:] else HOLDERS
    main(rounds, holders, secure="--secure" in sys.argv)
