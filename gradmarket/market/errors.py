"""The errors of the market as one tree, with those of documents in it. The docstring of an error is the first line of
its message.

MarketError                 the root of graphdoc.errors too: what refuses a document refuses a job's
├── Refused                 bytes or a request that break a rule; nothing was changed
│   ├── DocumentRefused     (graphdoc) a graph document
│   ├── TensorsRefused      (graphdoc) safetensors, npz or another tensor file
│   ├── PayloadRefused      a gradient's bytes
│   ├── JobRefused          a job specification
│   └── SignatureRefused    a signature, or what was signed
├── IllegalTransition       a state change that its entity's table does not allow
├── Conflict                what does not fit what is there already
├── NotFound                no such row or blob
└── RunnerFailed            (graphdoc) the child process that computes
    ├── RunnerCrashed
    ├── RunnerTimeout
    └── OutOfMemory
"""

from graphdoc.errors import (
    DocumentRefused,
    GraphdocError,
    OutOfMemory,
    Refused,
    RunnerCrashed,
    RunnerFailed,
    RunnerTimeout,
    TensorsRefused,
)

__all__ = [
    "Conflict",
    "DocumentRefused",
    "FieldRefused",
    "IllegalTransition",
    "JobRefused",
    "MarketError",
    "NotFound",
    "OutOfMemory",
    "PayloadRefused",
    "Refused",
    "RunnerCrashed",
    "RunnerFailed",
    "RunnerTimeout",
    "SignatureRefused",
    "TensorsRefused",
]

MarketError = GraphdocError


class PayloadRefused(Refused):
    """The payload was refused."""


class FieldRefused(Refused):
    """A field of the request was refused."""

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(f"{field}: {detail}")
        self.field = field


class JobRefused(FieldRefused):
    """The job was refused."""


class SignatureRefused(Refused):
    """The signature was refused."""


class IllegalTransition(MarketError):
    """Its state does not allow this step."""


class Conflict(MarketError):
    """It does not fit what is there already."""


class NotFound(MarketError):
    """There is no such thing."""
