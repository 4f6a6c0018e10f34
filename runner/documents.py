"""What the parent keeps of a document that its child accepted, and of what it sent for one step."""

from dataclasses import dataclass
from typing import Any

from gradmarket.market.gradient.payload import Layout
from gradmarket.market.model.document.schema import Document


@dataclass(frozen=True)
class DocumentInfo:
    """A document that the child accepted, and what a step of it answers."""

    document: Document
    layout: Layout


@dataclass(frozen=True)
class KnownDocument:
    data: bytes
    info: DocumentInfo


@dataclass(frozen=True)
class Sent:
    """A request's fields that say where its inputs lie, and the first free byte after them."""

    request: dict[str, Any]
    end: int
