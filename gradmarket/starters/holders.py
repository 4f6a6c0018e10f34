"""Trains on rows that stay with their holders: only each holder's own worker reads them.

    python train.py [ADDRESS …]

ADDRESSes are the wallets of the holders' workers. Without any it plays three holders on this machine, with a third of
scikit-learn's digits each, and prints how to start their workers. Rounds, price and the rest: settings.json beside it.
"""

import json
import subprocess
import sys
from pathlib import Path
from shlex import quote

import numpy as np
import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import nn

from gradmarket import Market
from gradmarket.data.pack import Cut, pack_dataset, write_dataset
from gradmarket.endpoint import find_endpoint
from gradmarket.market.errors import MarketError
from gradmarket.mistakes import print_error
from gradmarket.user_files import load_json_object

HERE = Path(__file__).parent
HOLDERS = 3


def own_rows() -> tuple[np.ndarray, np.ndarray]:
    """Returns rows of your own, on which the model is measured: x float[rows, …], y int[rows]. Put yours here."""
    digits = load_digits()
    return (digits.data[::5] / 16).astype(np.float32), digits.target[::5]


def make_example_holders() -> list[str]:
    """Packs rows for holders on this machine, and makes their wallets; returns these addresses."""
    digits, addresses = load_digits(), list[str]()
    theirs = np.flatnonzero(np.arange(len(digits.target)) % 5)
    for number in range(HOLDERS):
        rows, place = theirs[number::HOLDERS], HERE / f"holder-{number + 1}"
        packed = pack_dataset(
            {"x": (digits.data[rows] / 16).astype(np.float32), "y": digits.target[rows]}, Cut(rows=10**6)
        )
        write_dataset(packed, place / "rows")
        addresses.append(find_or_make_wallet(place))
    return addresses


def find_or_make_wallet(folder: Path) -> str:
    """Returns the address of the wallet in `folder`; `gradmarket wallet new` makes it the first time."""
    facts = folder / "wallet.txt"
    if not facts.is_file():
        command = [sys.executable, "-I", "-m", "gradmarket", "wallet", "new", "--plain-key", "--json", "--data"]
        facts.write_text(subprocess.run([*command, str(folder)], check=True, capture_output=True, text=True).stdout)
    return str(json.loads(facts.read_text())["address"])


def main(*addresses: str) -> None:
    torch.manual_seed(0)
    x, y = own_rows()
    model = nn.Sequential(nn.Linear(x.shape[1], 64), nn.ReLU(), nn.Linear(64, 10))
    holders = list(addresses) or make_example_holders()
    fields = load_json_object(str(HERE / "settings.json"), "rounds", "price", "private")
    private = {"holders": holders, **fields.pop("private")}
    if "secure_aggregation" in private:
        fields["tasks_per_round"] = len(holders)
    with Market() as market:
        job = market.train(model, nn.CrossEntropyLoss(), (x, y), private=private, **fields)
        print(f"job {job.id}. Each holder starts a worker beside its rows:", flush=True)
        for number in range(len(holders)):
            place = "FOLDER" if addresses else quote(str(HERE / f"holder-{number + 1}"))
            rows = f"--data {place} --dataset {place}/rows --for {job.id}"
            print(f"  gradmarket worker run --market {find_endpoint().url} {rows}", flush=True)
        job.watch()
        job.load_into(model)
        print(f"held-out accuracy {job.metrics['accuracy']:.3f}")
    save_file(model.state_dict(), HERE / "model.safetensors")


if __name__ == "__main__":
    if "--help" in sys.argv:
        print(__doc__)
        sys.exit()
    try:
        main(*sys.argv[1:])
    except (MarketError, OSError) as error:
        sys.exit(print_error(error, "python train.py"))
    except KeyboardInterrupt:
        print("stopped: a job that was posted goes on, and `gradmarket job list` shows it", file=sys.stderr)
        sys.exit(130)
