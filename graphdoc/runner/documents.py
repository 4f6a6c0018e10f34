"""What the parent stores about a document that its child accepted, and about the inputs that it sent for one step."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradmarket.market.gradient.payload_layout import WEIGHT, Layout
from gradmarket.market.model.corrections import CORRECTION
from gradmarket.market.model.layout import check_batch, check_state
from gradmarket.market.model.window_state import MEMORY, by_step, own_names
from gradmarket.market.step import Step, WindowStep
from graphdoc.document.graph import Document
from graphdoc.runner.arena import Arena, Described, described, encoded, end_of, planned

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
    """Writes a step's inputs into the arena, with an inner optimizer's memory and corrections if the state has them.

    Raises Refused if they are not what the document reads.
    """
    check_state(document, state)
    check_batch(document, batch)
    memory = {name: array for name, array in state.items() if name.startswith((MEMORY, CORRECTION))}
    read = {name: state[name] for name in document.state} | memory
    first = planned(described(read))
    second = planned(described(batch), end_of(first))
    arena.reserve(end_of(second))
    arena.write(first, read)
    arena.write(second, batch)
    return Sent({"digest": document.digest, "state": encoded(first), "batch": encoded(second)}, end_of(second))


def answered(info: DocumentInfo, state: Arrays, step: Step) -> Described:
    """Returns what a step answers: its layout's arrays, or the state after a window and the window's losses."""
    if not isinstance(step, WindowStep):
        weight: Described = {WEIGHT: ((), "float32")} if info.layout.weighed else {}
        return {**{entry.name: (entry.shape, "float32") for entry in info.layout.entries}, **weight}
    own = {name: state[name] for name in own_names(state, info.layout)}
    return {**described(own), **dict.fromkeys(by_step(info.layout), ((step.moves,), "float32"))}
