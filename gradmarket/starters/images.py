"""Trains a classifier of images on the market.

    python train.py [IMAGES.npz]

The file holds `x`, float32[rows, channels, height, width], and `y`, int64[rows], the number of each image's class from
0 on. Without one it trains on scikit-learn's handwritten digits. Rounds, price, optimizer and the rest of the job stand
in settings.json beside this script.
"""

import sys
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import nn

from gradmarket import Market
from gradmarket.market.errors import MarketError
from gradmarket.mistakes import print_error
from gradmarket.user_files import load_json_object

HERE = Path(__file__).parent


def load_images(file: str | None) -> tuple[torch.Tensor, torch.Tensor]:
    if file is None:
        digits = load_digits()
        return torch.tensor(digits.images[:, None] / 16).float(), torch.tensor(digits.target)
    try:
        with np.load(file) as arrays:
            x, y = torch.tensor(arrays["x"]).float(), torch.tensor(arrays["y"]).long()
    except (BadZipFile, EOFError, KeyError, TypeError, ValueError):
        sys.exit(f"error: {file} is no npz file with x and y: write it with numpy.savez(file, x=images, y=classes)")
    if x.dim() != 4 or y.shape != x.shape[:1] or not len(y) or y.min() < 0 or y.max() >= len(y):
        found = f"x{list(x.shape)} and y{list(y.shape)}" + (f" up to {y.max()}" if len(y) else "")
        sys.exit(f"error: {file} has {found}: give x[rows, channels, height, width] and each row's class, from 0 on")
    return x, y


def build_network(shape: torch.Size, classes: int) -> nn.Module:
    """Two convolutions; replace it by any module that takes float32[rows, channels, height, width]."""
    channels, height, width = shape
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * ((height + 1) // 2) * ((width + 1) // 2), classes),
    )


def main(file: str | None) -> None:
    torch.manual_seed(0)
    x, y = load_images(file)
    model = build_network(x.shape[1:], int(y.max()) + 1)
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
        main(sys.argv[1] if len(sys.argv) > 1 else None)
    except (MarketError, OSError) as error:
        sys.exit(print_error(error, "python train.py"))
    except KeyboardInterrupt:
        print("stopped: a job that was posted goes on, and `gradmarket job list` shows it", file=sys.stderr)
        sys.exit(130)
