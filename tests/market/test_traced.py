"""A traced task has the bits of the task itself, and each operation done again alone has its leaf."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from blake3 import blake3

from gradmarket.market.errors import Refused
from gradmarket.market.gradient import codecs, optimizers
from graphdoc import plugins
from graphdoc.document.schema import set_arithmetic
from tests.kit.traced import SmallTask, parse_step, small_cnn
from tests.lanes import leave_to_full

STEPS: dict[str, dict[str, Any]] = {
    "gradient": {"rows": 12, "microbatch": 5},
    "local": {
        "kind": "local",
        "steps": 3,
        "rows": 4,
        "microbatch": 3,
        "optimizer": {"name": "adamw", "lr": 0.01, "clip": 0.5, "weight_decay": 0.1},
        "rewarm": 2,
        "proximal": 0.1,
    },
}


@cache
def task(kind: str, codec: str = "fp32") -> SmallTask:
    return small_cnn(parse_step(**STEPS[kind]), codec)


@pytest.mark.parametrize("kind", STEPS)
def test_the_trace_ends_with_the_answer_and_each_operation_alone_gives_its_leaf(kind: str) -> None:
    here = task(kind)
    assert here.trace.root == blake3(here.payload).digest()
    assert len(here.trace.leaves) == len(here.operations.plan)
    differing = [
        leaf for leaf in range(len(here.trace.leaves)) if here.redo(leaf, here.trace) != here.trace.leaves[leaf]
    ]
    assert [here.operations.plan[leaf].name for leaf in differing] == []


def test_a_task_in_reproducible_arithmetic_is_traced_in_it() -> None:
    native = task("local")
    document = set_arithmetic(native.model.document, "reproducible")
    here = replace(native, model=replace(native.model, document=document))
    assert here.trace.root == blake3(here.payload).digest()
    assert here.payload != native.payload
    again = [here.redo(leaf, here.trace) for leaf in range(len(here.trace.leaves))]
    assert again == list(here.trace.leaves)


@pytest.mark.parametrize("codec", leave_to_full(plugins.list_plugin_names(codecs.__name__), 2))
def test_the_answer_is_traced_through_every_codec(codec: str) -> None:
    here = task("gradient", codec)
    assert here.trace.root == blake3(here.payload).digest()


@pytest.mark.parametrize("name", plugins.list_plugin_names(optimizers.__name__))
def test_every_inner_optimizer_moves_each_parameter_alone_as_it_moves_them_together(name: str) -> None:
    here = task("local").with_step(optimizer={"name": name, "lr": 0.01}, proximal=0.0, rewarm=0)
    assert here.trace.root == blake3(here.payload).digest()
    moves = [leaf for leaf in range(len(here.operations.plan)) if here.operations.plan[leaf].kind == "move"]
    assert moves
    assert all(here.redo(leaf, here.trace) == here.trace.leaves[leaf] for leaf in moves)


def test_a_step_by_windows_is_not_traced() -> None:
    windows = parse_step(kind="local", steps=4, rows=4, window=1, optimizer={"lr": 0.1})
    with pytest.raises(Refused, match="window by window"):
        len(small_cnn(windows).operations.plan)
