"""Documents of a released format are read and computed for ever; the JSON Schema is the code's.

`python -m tests.graphdoc.test_document_vectors` writes both anew: for a new format, never to make a test pass.
"""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import numpy as np
import pytest
import torch

from graphdoc.document.graph import WEIGHT, Document, Input, answer_of
from graphdoc.document.interpret import Program, compute_gradients
from graphdoc.document.schema import parse_document
from graphdoc.operators import ALLOWED
from tests.kit.document_json_schema import json_schema

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = ROOT / "docs" / "document.schema.json"
FOLDER = ROOT / "tests" / "vectors" / "documents"
EXPECTED = FOLDER / "expected" / "answers.json"
DOCUMENTS = sorted(FOLDER.glob("*.json"))
VALIDATOR = jsonschema_rs.validator_for(json_schema())
ROWS = 4


def written(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


def drawn(entry: Input, shape: tuple[int, ...], generator: np.random.Generator) -> torch.Tensor:
    """From integers alone: the same on every machine. Integer data are small enough to be labels and words."""
    if entry.dtype == "float32":
        return torch.tensor(generator.integers(1, 2**10, shape) * 2.0**-12, dtype=torch.float32)
    return torch.tensor(generator.integers(0, 2, shape), dtype=getattr(torch, entry.dtype))


def answers(document: Document) -> dict[str, Any]:
    """The digest, the structure of an answer, the loss and each gradient's norm."""
    generator = np.random.Generator(np.random.PCG64(7))
    state = {entry.name: drawn(entry, entry.shape, generator) for entry in document.of("param", "buffer", "const")}
    data = {entry.name: drawn(entry, (ROWS, *entry.shape), generator) for entry in document.of("data")}
    leaves = {entry.name: state[entry.name].requires_grad_() for entry in document.trainable}
    results = Program(document).run(state, data, bytes(range(32)))
    found = compute_gradients(results.loss, list(leaves.values()))
    return {
        "digest": document.digest,
        "structure": structure(document),
        "loss": results.loss.item(),
        "norms": {name: gradient.norm().item() for name, gradient in zip(leaves, found, strict=True)},
    }


def structure(document: Document) -> list[list[Any]]:
    """Name, shape and kind of each tensor of an answer, in its order; the weight is beside it."""
    named = {"loss": "loss"} | dict.fromkeys((entry.name for entry in document.trainable), "gradient")
    return [
        [name, list(shape), named.get(name, "buffer")]
        for name, (shape, _) in answer_of(document).items()
        if name != WEIGHT
    ]


def test_there_is_a_corpus() -> None:
    assert {path.stem for path in DOCUMENTS} == set(json.loads(EXPECTED.read_text()))
    assert len(DOCUMENTS) >= 8


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_a_document_is_still_read_and_computes_the_same(path: Path) -> None:
    data, expected = path.read_bytes(), json.loads(EXPECTED.read_text())[path.stem]
    VALIDATOR.validate(json.loads(data))
    found = answers(parse_document(data))
    assert (found["digest"], found["structure"]) == (expected["digest"], expected["structure"])
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-4)
    assert found["norms"] == pytest.approx(expected["norms"], rel=1e-2, abs=1e-4)


def test_documented_schema_is_the_code_s() -> None:
    assert SCHEMA.read_text() == written(json_schema())


def test_the_schema_knows_every_operator_and_refuses_others() -> None:
    document = json.loads(DOCUMENTS[0].read_bytes())
    assert set(json_schema()["$defs"]["node"]["properties"]["op"]["enum"]) == set(ALLOWED)
    for change in ({"op": "system.default"}, {"args": []}, {"out": []}, {"more": 1}):
        wrong = {**document, "nodes": [{**document["nodes"][0], **change}, *document["nodes"][1:]]}
        assert not VALIDATOR.is_valid(wrong), change


def write_anew() -> None:
    SCHEMA.write_text(written(json_schema()))
    EXPECTED.write_text(written({path.stem: answers(parse_document(path.read_bytes())) for path in DOCUMENTS}))


if __name__ == "__main__":
    write_anew()
