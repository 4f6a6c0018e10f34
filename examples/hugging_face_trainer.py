"""A Hugging Face classifier trained on the market, and evaluated by transformers' own Trainer.

    python examples/hugging_face_trainer.py [ROUNDS]

with a service and three workers running (see the README), and transformers and accelerate installed. A small BERT,
built from a configuration so that nothing is downloaded, learns whether a row of numbers ends higher than it
begins. `Trainer.train()` is what the market takes the place of; datasets, `compute_metrics` and `evaluate` stay.
"""

import sys
import tempfile
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, EvalPrediction, Trainer, TrainingArguments

from gradmarket import Market, TrainingJob

WORDS, LENGTH, ROWS = 16, 4, 1024
DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


class Rows(Dataset[dict[str, Tensor]]):
    """Examples as the Trainer takes them: `input_ids` int64[LENGTH] and `labels` int64[]."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.input_ids = torch.randint(WORDS, (ROWS, LENGTH), generator=generator)
        self.labels = (self.input_ids[:, -1] > self.input_ids[:, 0]).long()

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"input_ids": self.input_ids[index], "labels": self.labels[index]}


class Scores(nn.Module):
    """The classifier as the market calls a module: the input by its name -> logits float32[rows, 2]."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, input_ids: Tensor) -> Tensor:
        logits: Tensor = self.classifier(input_ids=input_ids).logits
        return logits


def accuracy(predicted: EvalPrediction) -> dict[str, float]:
    return {"accuracy": float((predicted.predictions.argmax(1) == predicted.label_ids).mean())}


def main(rounds: int, **fields: Any) -> TrainingJob:
    """`fields` are further ones of the job."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    classifier = BertForSequenceClassification(BertConfig(vocab_size=WORDS, **sizes, **DROPOUT))
    training, held_out = Rows(1), Rows(2)
    with Market() as market:
        job = market.train(
            Scores(classifier),
            nn.functional.cross_entropy,
            {"input_ids": training.input_ids, "y": training.labels},
            optimizer={"name": "adamw", "lr": 0.01},
            rows=256,
            rounds=rounds,
            price="0.01 GRAD",
            **fields,
        )
        job.watch()
        job.load_into(Scores(classifier))
    with tempfile.TemporaryDirectory() as folder:
        quiet = TrainingArguments(folder, report_to="none", disable_tqdm=True, use_cpu=True)
        found = Trainer(classifier, quiet, eval_dataset=held_out, compute_metrics=accuracy).evaluate()
    print(f"the Trainer's evaluation: accuracy {found['eval_accuracy']:.3f}")
    return job


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
