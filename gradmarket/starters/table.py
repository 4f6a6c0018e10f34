"""Trains a classifier of a table's rows on the market.

    python train.py [TABLE.csv COLUMN]

COLUMN is the class of each row, in words or numbers; every other column must hold numbers. Without a table it trains on
scikit-learn's wines. Rounds, price, optimizer and the rest of the job stand in settings.json beside this script.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from pyarrow import csv
from safetensors.torch import save_file
from sklearn.datasets import load_wine
from torch import nn

from gradmarket import Market
from gradmarket.market.errors import MarketError
from gradmarket.mistakes import print_error
from gradmarket.user_files import load_json_object

HERE = Path(__file__).parent


def load_table_rows(file: str | None, column: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Returns numbers float[rows, columns] and the class of each row."""
    if file is None:
        wines = load_wine()
        return wines.data, wines.target
    try:
        columns = csv.read_csv(file).to_pydict()
    except ValueError as error:
        sys.exit(f"error: {file} is no table: {error}: correct it there, or name another file")
    if column not in columns:
        sys.exit(
            f"error: {file} has no column {column or 'named here'}: name the classes' column of {', '.join(columns)}"
        )
    named = columns.pop(column)
    if None in named:
        sys.exit(f"error: row {named.index(None)} of {file} has no {column}: write its class, or take the row out")
    classes = np.array(named)
    if not columns or not len(classes):
        sys.exit(f"error: {file} has no rows, or no column of numbers beside {column}: name another file")
    return np.stack([numbers_of(values, name) for name, values in columns.items()], axis=1), classes


def numbers_of(values: list[object], column: str) -> np.ndarray:
    try:
        return np.array(values, float)
    except (TypeError, ValueError):
        sys.exit(f"error: column {column} does not hold numbers: take it out, or write it in numbers")


def main(file: str | None = None, column: str | None = None) -> None:
    torch.manual_seed(0)
    numbers, named = load_table_rows(file, column)
    classes, numbered = np.unique(named, return_inverse=True)
    scaled = (numbers - numbers.mean(0)) / (numbers.std(0) + 1e-9)
    x, y = torch.tensor(scaled).float(), torch.tensor(numbered)
    model = nn.Sequential(nn.Linear(x.shape[1], 32), nn.ReLU(), nn.Linear(32, len(classes)))
    settings = load_json_object(str(HERE / "settings.json"), "rounds", "price")
    with Market() as market:
        job = market.train(model, nn.CrossEntropyLoss(), (x, y), **settings)
        print(f"job {job.id}")
        job.watch()
        job.load_into(model)
        print(f"held-out accuracy {job.metrics['accuracy']:.3f}")
    save_file(model.state_dict(), HERE / "model.safetensors")


if __name__ == "__main__":
    if "--help" in sys.argv:
        print(__doc__)
        sys.exit()
    try:
        main(*sys.argv[1:3])
    except (MarketError, OSError) as error:
        sys.exit(print_error(error, "python train.py"))
    except KeyboardInterrupt:
        print("stopped: a job that was posted goes on, and `gradmarket job list` shows it", file=sys.stderr)
        sys.exit(130)
