"""Lies of one element that a referee finds, in tasks of every kind of document.

Each lie is about one element of one result of one operation, drawn evenly from every kind of operation, and followed up
by an honest computation. Where the task swallows it, such as by rounding, no answer changes and there is nothing to
dispute: then its liar changes the answer besides, and is found where the first of both shows. It shows each hundred.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from random import Random

import numpy as np
import torch
from torch import nn

from benchmarks.figure import Figure
from benchmarks.referee import name_kind
from benchmarks.size import sized
from gradmarket.market.signing import address_of
from graphdoc.document.publish import next_token, publish_module
from tests.kit.disputes import LIAR, build_lie, play_dispute, shows_at
from tests.kit.traced import Arrays, SmallTask, parse_step, publish, small_cnn
from tests.models import text

PREFIX = "referee.lies"
LIES = sized(2000, 20)


@dataclass(frozen=True)
class _Lied:
    task: SmallTask

    @cached_property
    def kinds(self) -> dict[str, list[int]]:
        found, plan = defaultdict[str, list[int]](list), self.task.operations.plan
        for leaf in range(len(plan)):
            if plan[leaf].results:
                found[name_kind(plan[leaf])].append(leaf)
        return dict(found)


def measure() -> Iterator[Figure]:
    """Lies by turns over the tasks, and in each over its kinds of operation."""
    draw, tasks = Random(31), [_Lied(task) for task in _build_small_tasks()]
    lies, found, own, kinds = 0, 0, 0, set[str]()
    while lies < LIES:
        one = tasks[lies % len(tasks)]
        kind = draw.choice(list(one.kinds))
        leaf = draw.choice(one.kinds[kind])
        lie = build_lie(one.task, leaf, draw.randrange(one.task.operations.plan[leaf].results), draw)
        if lie is None:
            continue
        verdict, _ = play_dispute(one.task, lie)
        lies += 1
        kinds.add(kind)
        found += verdict.wrong == {address_of(LIAR)} and verdict.leaf == shows_at(one.task, lie)
        own += verdict.leaf == leaf
        if lies % 100 == 0:
            print(f"{found} of {lies} lies found, {own} where they were told", file=sys.stderr, flush=True)
    note = f"of {lies} lies over {len(kinds)} kinds of operation in {len(tasks)} tasks: {own} where they were told, the"
    note += " others, which change nothing that a later part reads, where the liar changes its answer instead"
    yield Figure("referee.lies_found", found, "lies", target=f">= {lies}", note=note)


def _build_small_tasks() -> Iterator[SmallTask]:
    yield small_cnn(parse_step(rows=12, microbatch=5), "int4")
    clipped = {"name": "adamw", "lr": 0.01, "clip": 0.1}
    yield small_cnn(parse_step(kind="local", steps=2, rows=4, optimizer=clipped, proximal=0.1), "topk")
    yield small_cnn(parse_step(kind="local", steps=2, rows=4, optimizer={"name": "muon", "lr": 0.01}), "two_bit")
    draw = np.random.default_rng(3)
    flat: Arrays = {"x": draw.standard_normal((40, 9, 3)).astype(np.float32), "y": draw.integers(0, 3, 40)}
    step = parse_step(rows=6, microbatch=4)
    for layers in ([nn.Flatten(), nn.Linear(27, 8), nn.LayerNorm(8), nn.GELU(), nn.Dropout(0.2), nn.Linear(8, 3)],):
        yield SmallTask(publish(nn.Sequential(*layers), (9, 3)), flat, step, "fp4")
    yield SmallTask(publish(_Last(nn.LSTM(3, 4, batch_first=True)), (9, 3)), flat, step, "bf16")
    torch.manual_seed(2)
    words = draw.integers(1, 16, (40, 6))
    model = publish_module(text.GPT(17, 8, 8, 1), next_token, (torch.ones(2, 6).long(), torch.ones(2, 6).long()))
    yield SmallTask(model, {"x": words, "y": words}, step, "int8")


class _Last(nn.Module):
    def __init__(self, recurrence: nn.RNNBase) -> None:
        super().__init__()
        self.recurrence, self.head = recurrence, nn.Linear(4, 3)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.head(self.recurrence(rows)[0][:, -1])
        return answer
