"""The class of a card, as far as a processor can stand in: its fixed kernels and their digest."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from blake3 import blake3
from torch import Tensor

from graphdoc.errors import Refused
from graphdoc.runner import card_class
from graphdoc.runner.card_class import KERNELS, compute_kernels, digest_kernels

INPUTS = "be2f525921a7b751"
"""Digest of all that the kernels compute with."""


@pytest.fixture(scope="module")
def inputs() -> list[bytes]:
    """Returns the inputs of the kernels of `results`."""
    return []


@pytest.fixture(scope="module")
def results(inputs: list[bytes]) -> dict[str, bytes]:
    make = card_class._make_values

    def make_recorded(*given: Any, **named: Any) -> Tensor:
        made = make(*given, **named)
        inputs.append(made.detach().float().numpy().tobytes())
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(card_class, "_make_values", make_recorded)
        return compute_kernels("cpu")


def test_every_release_gives_the_kernels_the_same_numbers(results: dict[str, bytes], inputs: list[bytes]) -> None:
    """Others would name every card's class anew, and nothing would be known of it."""
    assert results
    assert blake3(b"".join(inputs)).hexdigest(8) == INPUTS


def test_fixed_kernels_have_the_same_bits_again_and_each_is_in_the_digest(results: dict[str, bytes]) -> None:
    assert compute_kernels("cpu") == results
    whole = digest_kernels(results)
    assert re.fullmatch("[0-9a-f]{16}", whole)
    assert digest_kernels(dict(reversed(results.items()))) == whole
    changed = [digest_kernels(results | {name: bytes(32)}) for name in results]
    assert len({whole, *changed}) == len(KERNELS) + 1
    assert len(set(results.values())) == len(KERNELS)


def test_one_bit_of_one_result_changes_its_kernel_s_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.ones(1000)

    def compute(_device: str) -> Iterator[Tensor]:
        yield values

    monkeypatch.setattr(card_class, "KERNELS", {"one": compute})
    before = compute_kernels("cpu")
    values[7] = torch.nextafter(values[7], torch.tensor(2.0))
    assert compute_kernels("cpu") != before


@pytest.mark.parametrize("words", ["x does not have a deterministic implementation", "an illegal memory access"])
def test_a_kernel_that_torch_refuses_is_part_of_the_class(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def compute(_device: str) -> Iterator[Tensor]:
        yield torch.ones(1)
        raise RuntimeError(words)

    monkeypatch.setattr(card_class, "KERNELS", {"one": compute})
    if "deterministic" in words:
        assert compute_kernels("cpu") == compute_kernels("cpu")
    else:
        with pytest.raises(RuntimeError, match="illegal"):
            compute_kernels("cpu")


@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch is built with CUDA")
def test_a_torch_without_cuda_is_refused_by_that_name() -> None:
    with pytest.raises(Refused, match="is built without CUDA"):
        card_class.describe_card("cuda")
