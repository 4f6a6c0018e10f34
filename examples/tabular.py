"""A table trained on the market: scikit-learn's bundled wines (UCI ML, Aeberhard 1992) as Parquet, by an MLP.

    python examples/tabular.py [ROUNDS]

with a service and three workers running (see the README). The table is made the same in every run, and travels as
Parquet partitions; the last line is the trained model's accuracy on rows that were held out.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from pyarrow import parquet
from sklearn.datasets import load_wine
from torch import nn

from gradmarket import Market, TrainingJob


def write_table(path: Path) -> None:
    """178 wines of 13 measurements each, scaled to mean 0 and deviation 1, and the column `grower`."""
    wines = load_wine()
    scaled = (wines.data - wines.data.mean(0)) / wines.data.std(0)
    columns = dict(zip(wines.feature_names, scaled.T, strict=True))
    parquet.write_table(pa.table(columns | {"grower": wines.target}), path)


def main(rounds: int, **fields: Any) -> TrainingJob:
    """`fields` are further ones of the job."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(13, 16), nn.Tanh(), nn.Linear(16, 3))
    with tempfile.TemporaryDirectory() as folder, Market() as market:
        table = Path(folder) / "wines.parquet"
        write_table(table)
        job = market.train(
            model,
            nn.functional.cross_entropy,
            table,
            target="grower",
            optimizer={"name": "adamw", "lr": 0.05},
            rows=64,
            rounds=rounds,
            price="0.01 GRAD",
            held_out=0.2,
            partition_format="parquet",
            **fields,
        )
        job.watch()
        job.load_into(model)
        print(f"held-out accuracy {job.metrics['accuracy']:.3f}")
    return job


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
