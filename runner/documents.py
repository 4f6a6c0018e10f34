"""What the parent stores about a document that its child accepted, and about the inputs that it sent for one step."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradmarket.market.gradient.payload_layout import Layout
from gradmarket.market.model.document.graph import Document
from gradmarket.market.model.layout import check_batch, check_state
from gradmarket.runner.arena import Arena, described, encoded, end_of, planned

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class DocumentInfo:
    """A document that the child accepted, and the layout of its step's result."""

    document: Document
    layout: Layout


@dataclass(frozen=True)
class KnownDocument:
    data: bytes
    info: DocumentInfo


@dataclass(frozen=True)
class Sent:
    """The request fields that locate its inputs, and the first free byte after them."""

    request: dict[str, Any]
    end: int


def written(arena: Arena, document: Document, state: Arrays, batch: Arrays) -> Sent:
    """Writes a step's inputs into the arena. Raises Refused if they are not what the document reads."""
    check_state(document, state)
    check_batch(document, batch)
    read = {name: state[name] for name in document.state}
    first = planned(described(read))
    second = planned(described(batch), end_of(first))
    arena.reserve(end_of(second))
    arena.write(first, read)
    arena.write(second, batch)
    return Sent({"digest": document.digest, "state": encoded(first), "batch": encoded(second)}, end_of(second))
