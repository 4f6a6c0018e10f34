"""What the parent stores about a document that its child accepted, and about the inputs that it sent for one step."""

from dataclasses import dataclass
from typing import Any

from gradmarket.market.gradient.payload import Layout
from gradmarket.market.model.document.graph import Document


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
