"""A decoder-only transformer over tokens (Radford et al. 2019): each position predicts the next token."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import torch
from torch import Tensor, nn

from gradmarket.market.arguments import parse_model_arguments
from gradmarket.market.arguments.gpt import Settings
from gradmarket.market.errors import JobRefused
from graphdoc.document.publish import next_token

OBJECTIVE: Final = next_token
INITIAL_DEVIATION: Final = 0.02


def build(arguments: Mapping[str, Any], input_shape: Sequence[int], classes: int) -> nn.Module:
    """Returns a module: int64[rows, length] below `classes` -> logits float32[rows, length, classes].

    Raises JobRefused, naming the field.
    """
    settings = cast(Settings, parse_model_arguments("gpt", arguments))
    if len(input_shape) != 1:
        raise JobRefused("model.architecture", f"gpt takes rows of tokens, and the data has {tuple(input_shape)}")
    return _Gpt(settings, input_shape[0], classes)


class _Gpt(nn.Module):
    def __init__(self, settings: Settings, length: int, classes: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(classes, settings.width)
        self.places = nn.Parameter(torch.zeros(length, settings.width))
        self.dropout = nn.Dropout(settings.dropout)
        self.blocks = nn.Sequential(*(_Block(settings) for _ in range(settings.depth)))
        self.norm = nn.LayerNorm(settings.width)
        self.head = nn.Linear(settings.width, classes, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=INITIAL_DEVIATION)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.blocks(self.dropout(self.tokens(x) + self.places))
        logits: Tensor = self.head(self.norm(hidden))
        return logits


class _Block(nn.Module):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.heads = settings.heads
        self.before_attention, self.before_mixing = nn.LayerNorm(settings.width), nn.LayerNorm(settings.width)
        self.attention = nn.Linear(settings.width, 3 * settings.width)
        self.out = nn.Linear(settings.width, settings.width)
        self.mixing = nn.Sequential(
            nn.Linear(settings.width, 4 * settings.width), nn.GELU(), nn.Linear(4 * settings.width, settings.width)
        )
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.dropout(self.out(self._compute_attention(self.before_attention(hidden))))
        mixed: Tensor = hidden + self.dropout(self.mixing(self.before_mixing(hidden)))
        return mixed

    def _compute_attention(self, hidden: Tensor) -> Tensor:
        parts = self.attention(hidden).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        return attended.transpose(1, 2).flatten(2)
