"""Which module of its owner a node of a traced program comes from, as refusals name it."""

from typing import Any

import pytest
from torch import fx, nn

from graphdoc.document.refusals import module_path


@pytest.mark.parametrize(
    ("stack", "said"),
    [
        (None, "the model"),
        ({"root": ("", nn.Module)}, "the model"),
        ({"root": ("", nn.Module), "a": ("model.blocks", nn.Module), "b": ("model.blocks.0", nn.Module)}, "blocks.0"),
        ({"a": ("L['self'].head", nn.Module), "last": ("", nn.Module)}, "head"),
    ],
)
def test_the_innermost_module_that_has_a_name(stack: Any, said: str) -> None:
    node = fx.Graph().placeholder("x")
    if stack is not None:
        node.meta["nn_module_stack"] = stack
    assert module_path(node) == said
