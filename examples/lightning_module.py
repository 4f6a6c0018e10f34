"""A LightningModule trained on the market, and tested by Lightning's own Trainer.

    python examples/lightning_module.py [ROUNDS]

with a service and three workers running (see the README). What `training_step` does with a batch is what the job's
loss does: the module's output and the target give the mean loss. The Trainer's loop, its optimizer and its callbacks
are not used: rounds, optimizer and what records them belong to the job.
"""

import sys
from typing import Any

import lightning
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from gradmarket import Market, TrainingJob


class Digits(lightning.LightningModule):
    """A perceptron on 64 pixels; `loss` is used by Lightning's steps and by the market alike."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)

    def loss(self, scores: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(scores, y)

    def training_step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        x, y = batch
        return self.loss(self(x), y)

    def test_step(self, batch: tuple[Tensor, Tensor]) -> None:
        x, y = batch
        self.log("accuracy", (self(x).argmax(1) == y).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


def main(rounds: int, **fields: Any) -> TrainingJob:
    """`fields` are further ones of the job."""
    torch.manual_seed(0)
    pixels, digits = load_digits(return_X_y=True)
    rows = TensorDataset(torch.tensor(pixels / 16).float(), torch.tensor(digits))
    module = Digits()
    with Market() as market:
        optimizer = {"name": "adamw", "lr": 0.01}
        job = market.train(
            module.model, module.loss, rows, rows=256, rounds=rounds, price="0.01 GRAD", optimizer=optimizer, **fields
        )
        job.watch()
        job.load_into(module.model)
    trainer = lightning.Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False)
    (found,) = trainer.test(module, DataLoader(rows, batch_size=512), verbose=False)
    print(f"Lightning's test: accuracy {found['accuracy']:.3f}")
    return job


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
