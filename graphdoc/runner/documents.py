"""The parent's records of a document that its child accepted, and of the inputs that it sent for one run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphdoc.document.graph import Document
from graphdoc.document.inputs import check_batch, check_state
from graphdoc.runner.arena import Arena, Placements, describe_arrays, encode_placements, end_of, plan_placements

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class KnownDocument:
    data: bytes
    document: Document


@dataclass(frozen=True)
class Sent:
    """The request fields that locate its inputs, the first free byte after them, and the state by its name."""

    request: dict[str, Any]
    end: int
    held: tuple[str, Placements] | None


def write_inputs(
    arena: Arena, document: Document, state: Arrays, batch: Arrays, beside: Arrays | None = None, name: str = ""
) -> Sent:
    """Writes a run's inputs into the arena: the document's state, the arrays `beside` it, and the rows.

    `name` belongs to these values alone: a state that the arena holds under it is not written again. Raises Refused for
    arrays that are not the document's inputs.
    """
    check_state(document, state)
    check_batch(document, batch)
    read = {name: state[name] for name in document.state} | dict(beside or {})
    first = plan_placements({**document.state, **describe_arrays(beside or {})})
    second = plan_placements(describe_arrays(batch), end_of(first))
    arena.reserve(end_of(second))
    held = (name, first) if name else None
    if held is None or arena.held != held:
        arena.write(first, read)
    arena.write(second, batch)
    places = {"state": encode_placements(first), "batch": encode_placements(second)}
    return Sent({"digest": document.digest, "held": name, **places}, end_of(second), held)
