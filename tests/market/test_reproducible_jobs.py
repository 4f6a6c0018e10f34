"""Jobs of reproducible arithmetic: their limits, and the documents offered to workers carry it."""

from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from gradmarket.commands.plan import ONE_CLASS, _build_costs
from gradmarket.market.errors import DocumentRefused
from gradmarket.market.job import JobSpec
from gradmarket.market.manifest import Labelled
from gradmarket.runner import architectures
from gradmarket.runner.architectures import publish_ready
from gradmarket.sdk.model import set_job_arithmetic
from graphdoc import plugins
from graphdoc.document.schema import parse_document
from graphdoc.export import export_module
from tests.lanes import leave_to_full

FIELDS: dict[str, Any] = {
    "name": "job", "model": {"architecture": "mlp"}, "data": {"ready": "digits"}, "step": {"rows": 8},
    "optimizer": {"lr": 0.1}, "rounds": 1, "price": "1", "arithmetic": "reproducible",
}  # fmt: skip
LOCAL = {"kind": "local", "rows": 8, "steps": 4, "window": 1, "optimizer": {"name": "muon", "lr": 0.1, "clip": 1.0}}
SINGLE = {"name": "fixed", "replicas": 2, "max_replicas": 2}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"precision": "bf16"}, "set precision to fp32"),
        (
            {"verifier": {"name": "tolerance"}, "replication": SINGLE, "audit": {"probability": 0.1}},
            "verifier to exact",
        ),
        ({"data": {"holders": ["0x" + "11" * 20], "inputs": {"x": {"dtype": "float32"}}}}, "leave out arithmetic"),
        ({"arithmetic": "exact"}, "native"),
        ({"precision": "tf32"}, "set precision to fp32"),
        ({"arithmetic": "tf32"}, "native"),
    ],
)
def test_a_job_that_cannot_be_reproducible_is_refused_in_words(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        JobSpec.model_validate(FIELDS | changes)


@pytest.mark.parametrize("codec", ["fp32", "bf16", "fp4", "topk"])
def test_codecs_and_local_steps_have_the_same_bits_everywhere_and_are_taken(codec: str) -> None:
    """Their bits: test_same_bits and test_optimizers."""
    audited = {"replication": {"name": "audited", "audit": 0.5}}
    spec = JobSpec.model_validate(FIELDS | {"step": LOCAL, "uplink": {"codec": codec}} | audited)
    assert spec.reproducible
    assert spec.model_dump(mode="json")["arithmetic"] == "reproducible"
    assert _build_costs(spec)["arithmetic"] == ONE_CLASS


def test_a_job_that_names_none_keeps_its_digest() -> None:
    native = JobSpec.model_validate(FIELDS | {"arithmetic": "native"})
    assert "arithmetic" not in native.model_dump(mode="json")
    assert not native.reproducible


@pytest.mark.parametrize(
    "name", leave_to_full(sorted(plugins.list_plugin_names(architectures.__name__), key="gpt".__eq__))
)
@pytest.mark.parametrize("arguments", [{}, {"dropout": 0.1}], ids=["plain", "dropout"])
def test_every_ready_architecture_has_its_kernels(name: str, arguments: dict[str, Any]) -> None:
    torch.manual_seed(0)
    tokens = name == "gpt"
    data = Labelled(dtype="int64" if tokens else "float32", shape=(8,) if tokens else (1, 8, 8), classes=10)
    made = publish_ready(name, arguments, data, 1, "fp32")
    offered = parse_document(set_job_arithmetic(made, JobSpec.model_validate(FIELDS)).document)
    assert offered.arithmetic == "reproducible"


class Sums(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).cumsum(1)


def test_a_module_of_an_operator_without_a_kernel_is_refused_by_its_name() -> None:
    rows = {"x": np.ones((4, 4), np.float32), "y": np.arange(4) % 3}
    made = export_module(Sums(), nn.functional.cross_entropy, rows)
    with pytest.raises(DocumentRefused, match="cumsum has no reproducible kernel"):
        set_job_arithmetic(made, JobSpec.model_validate(FIELDS))
    native = JobSpec.model_validate(FIELDS | {"arithmetic": "native"})
    assert set_job_arithmetic(made, native).document == made.document


def test_documents_of_a_job_in_tf32_have_that_arithmetic() -> None:
    spec = JobSpec.model_validate(
        {name: value for name, value in FIELDS.items() if name != "arithmetic"} | {"precision": "tf32"}
    )
    assert "arithmetic" not in spec.model_dump(mode="json")
    arrays = {"x": np.zeros((4, 8), np.float32), "y": np.arange(4)}
    made = export_module(nn.Linear(8, 4), nn.functional.cross_entropy, arrays, spec.precision)
    assert parse_document(set_job_arithmetic(made, spec).document).precision == "tf32"
    plain = spec.model_copy(update={"precision": "fp32"})
    assert parse_document(set_job_arithmetic(made, plain).document).precision == "fp32"
