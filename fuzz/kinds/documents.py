"""Graph documents: the kept ones of every sort of model, and ones grown from the operators' own types; then damaged."""

import json
from functools import cache
from pathlib import Path
from random import Random
from typing import Final

from fuzz.case import Case
from fuzz.kinds._growth import grown
from fuzz.values import changed, dumped, misspelt
from gradmarket.market.errors import DocumentRefused
from graphdoc.document import schema
from graphdoc.document.graph import Document

REFUSED: Final = DocumentRefused
KEPT: Final = Path(__file__).parents[2] / "tests" / "vectors" / "documents"
LARGEST_KEPT: Final = 4000
"""Bytes: larger documents have no further operators, and cost more."""


def case(chance: Random) -> Case:
    whole = grown(chance) if chance.random() < 0.7 else json.loads(chance.choice(_kept()))
    draw = chance.random()
    if draw < 0.25:
        return Case(dumped(whole))
    return Case(dumped(changed(whole, chance)) if draw < 0.85 else misspelt(dumped(whole), chance))


def read(case: Case) -> Document:
    """A document has one sequence of bytes, and values only of earlier ones."""
    found = schema.parse_document(case.data)
    assert dumped(json.loads(case.data)) == case.data
    assert found.loss >= len(found.inputs)
    assert all(abs(size) <= schema.DIMENSION_LIMIT for entry in found.inputs for size in entry.shape)
    return found


@cache
def _kept() -> tuple[bytes, ...]:
    found = (path.read_bytes().strip() for path in sorted(KEPT.glob("*.json")))
    return tuple(data for data in found if len(data) <= LARGEST_KEPT)
