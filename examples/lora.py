"""LoRA on the market: a Hugging Face GPT-2 that counts up learns to count down, by low-rank additions alone.

    python examples/lora.py [ROUNDS]

with a service and three workers running (see the README), and transformers installed. The model is built from a
configuration and taught here for some seconds, so that nothing is downloaded; `from_pretrained` takes their place. It
is frozen then: workers answer gradients of the additions only, which are 7 % of the parameters (Hu et al. 2021,
https://arxiv.org/abs/2106.09685). The last line is the loss on held-out rows that count down.
"""

import sys
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.pytorch_utils import Conv1D

from gradmarket import Market, TrainingJob

WORDS, LENGTH, RANK = 32, 16, 4
QUIET = {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
UNUSED = {"use_cache": False, "bos_token_id": None, "eos_token_id": None}


class Lora(nn.Module):
    """x -> base(x) + x A B, with B zero at first, so that training starts from the model as it was."""

    def __init__(self, base: Conv1D) -> None:
        super().__init__()
        inputs, outputs = base.weight.shape
        self.base = base
        self.a = nn.Parameter(torch.randn(inputs, RANK) / inputs**0.5)
        self.b = nn.Parameter(torch.zeros(RANK, outputs))

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = self.base(x) + x @ self.a @ self.b
        return added


class Language(nn.Module):
    """A GPT-2 as the market calls a module: int64[rows, length] words -> logits float32[rows, length, words]."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        sizes = {"vocab_size": WORDS, "n_positions": LENGTH, "n_embd": 64, "n_layer": depth, "n_head": 4}
        self.gpt = GPT2LMHeadModel(GPT2Config(**sizes, **QUIET, **UNUSED))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.gpt(input_ids=x).logits
        return logits

    def add_low_rank(self) -> None:
        """Freezes everything, and gives each projection of the blocks an addition that is trained."""
        self.requires_grad_(False)
        for block in self.gpt.transformer.h:
            block.attn.c_attn, block.attn.c_proj = Lora(block.attn.c_attn), Lora(block.attn.c_proj)
            block.mlp.c_fc, block.mlp.c_proj = Lora(block.mlp.c_fc), Lora(block.mlp.c_proj)


def loss(logits: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())


def counting(by: int, rows: int = 1024) -> tuple[Tensor, Tensor]:
    """Rows that count on in steps of 1 to 3 times `by`; the target is the next number."""
    generator = torch.Generator().manual_seed(1)
    first = torch.randint(WORDS, (rows, 1), generator=generator)
    step = by * torch.randint(1, 4, (rows, 1), generator=generator)
    every = (first + step * torch.arange(LENGTH + 1)) % WORDS
    return every[:, :-1].contiguous(), every[:, 1:].contiguous()


def taught(depth: int, steps: int) -> Language:
    """A model that counts up: what a checkpoint from elsewhere would be."""
    torch.manual_seed(0)
    model = Language(depth)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    x, y = counting(by=1)
    for rows in torch.randint(len(x), (steps, 64)):
        optimizer.zero_grad()
        loss(model(x[rows]), y[rows]).backward()
        optimizer.step()
    return model


def main(rounds: int, depth: int = 2, steps: int = 200, **fields: Any) -> TrainingJob:
    """`fields` are further ones of the job."""
    model = taught(depth, steps)
    model.add_low_rank()
    down = counting(by=-1)
    with torch.no_grad():
        before = loss(model(down[0]), down[1])
    with Market() as market:
        job = market.train(
            model,
            loss,
            down,
            optimizer={"name": "adamw", "lr": 0.03, "weight_decay": 0.0},
            rows=128,
            rounds=rounds,
            price="0.01 GRAD",
            **{"name": "GPT-2 by LoRA", **fields},
        )
        job.watch()
        job.load_into(model)
        print(f"held-out loss {job.metrics['loss']:.3f}, before {before:.3f}")
    return job


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
