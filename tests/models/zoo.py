"""Every model of this folder with its data, target, loss and named sizes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from graphdoc.document.alone import as_when_alone
from graphdoc.document.publish import Loss, Objective, Size, compute_classification_loss, document_of
from tests.models import hub, text, vision

IMAGES, TOKENS = torch.randn(4, 3, 16, 16), torch.arange(24).reshape(4, 6) % 15 + 1
CLASSES, MASK = torch.arange(4) % 2, torch.arange(6) < torch.tensor([[3], [6], [2], [5]])


def next_token(answer: Any, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Cross-entropy of a word for every place; of the library's answers their logits."""
    logits = getattr(answer, "logits", answer)
    return nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten()), {}


def labelled(answer: Any, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    return compute_classification_loss(answer.logits, target)


def pixels(answer: Tensor, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """A mean for every image: a label for each pixel would do, and cost more."""
    return nn.functional.cross_entropy(answer.mean((2, 3)), target), {}


@dataclass(frozen=True)
class Case:
    build: Callable[[], nn.Module]
    data: Mapping[str, Tensor]
    loss: Loss = compute_classification_loss
    long: bool = False
    """Whether batches may have sequences of different lengths, up to eight."""

    def document(self, training: bool = True) -> tuple[bytes, dict[str, Tensor]]:
        """The document, proven to equal the module, and its state."""
        torch.manual_seed(0)
        objective = Objective(self.build(), self.loss, by_name="x" not in self.data, around=as_when_alone)
        places = {name: 1 for name, tensor in self.data.items() if tensor.dim() == 2}
        sizes = {"length": Size(8, places)} if self.long else {}
        return document_of(objective.train(training), dict(self.data), sizes, training)


def images(build: Callable[[], nn.Module], loss: Loss = compute_classification_loss) -> Case:
    return Case(build, {"x": IMAGES, "y": CLASSES}, loss)


def words(build: Callable[[], nn.Module], long: bool = True, name: str = "x") -> Case:
    return Case(build, {name: TOKENS, "y": TOKENS}, next_token, long)


MLP = nn.Sequential
ZOO = {
    "mlp": images(lambda: MLP(nn.Flatten(), nn.Linear(768, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 2))),
    "resnet-18": images(lambda: vision.resnet(vision.Basic, (2, 2, 2, 2), 2, 2)),
    "resnet-50": images(lambda: vision.resnet(vision.Bottleneck, (3, 4, 6, 3), 2, 2)),
    "convnet": images(lambda: vision.convnet(2)),
    "vit": images(lambda: vision.ViT(16, 8, 8, 1, 2)),
    "unet": images(lambda: vision.UNet(2, 2), pixels),
    "lstm": words(lambda: text.Recurrent(nn.LSTM, 17, 8)),
    "gru": words(lambda: text.Recurrent(nn.GRU, 17, 8, both_ways=True)),
    "gpt": words(lambda: text.GPT(17, 8, 8, 1)),
    "gpt in bfloat16": words(lambda: text.Autocast(text.GPT(17, 8, 8, 1))),
    "masked encoder": Case(
        lambda: text.Masked(17, 8, 2),
        {"tokens": TOKENS, "mask": MASK, "y": CLASSES},
        compute_classification_loss,
        long=True,
    ),
    "transformer": words(lambda: text.Translator(17, 8, 8)),
    "experts": words(lambda: text.Experts(17, 8, 3)),
    "lora": images(lambda: MLP(nn.Flatten(), text.Lora(nn.Linear(768, 8), 2), nn.ReLU(), nn.Linear(8, 2))),
    "hub's gpt-2": words(hub.gpt2, name="input_ids"),
    "hub's llama": words(hub.llama, name="input_ids"),
    "hub's bert": Case(
        hub.bert, {"input_ids": TOKENS, "attention_mask": MASK.long(), "y": CLASSES}, labelled, long=True
    ),
    "hub's vit": Case(hub.vit, {"pixel_values": IMAGES, "y": CLASSES}, labelled),
}
