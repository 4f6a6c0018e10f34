"""Models that nothing was made for are published as they come, with their own bits in their own modes."""

import pytest
import torch

from graphdoc.document.schema import parse_document
from graphdoc.export import check_taken, export_module
from tests.graphdoc.own_bits import by_document, by_module, differences
from tests.kit.torch_tests import TRACING
from tests.models.held import HELD

pytestmark = [pytest.mark.full, *TRACING]


@pytest.mark.parametrize("name", HELD)
def test_a_held_model_has_its_own_bits(name: str) -> None:
    """Publishing proves both documents; where nothing is drawn, the whole batch is compared once more from outside."""
    build, loss, rows = HELD[name]
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        torch.manual_seed(0)
        module, data = build(), rows()
        arrays = {key: tensor.numpy() for key, tensor in data.items()}
        made = export_module(module, loss, arrays)
        check_taken(made, arrays, len(arrays["y"]))
        if not parse_document(made.document).draws:
            assert not differences(by_document(made, data), by_module(module, loss, data))
    finally:
        torch.set_num_threads(before)


def test_there_are_sixty() -> None:
    assert len(HELD) >= 60
