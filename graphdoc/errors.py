"""The errors of documents as one tree. The docstring of an error is the first line of its message.

GraphdocError
├── Refused                 bytes or arrays that break a rule; nothing was changed
│   ├── DocumentRefused     a graph document
│   └── TensorsRefused      safetensors, npz or another tensor file
└── RunnerFailed            the child process that computes
    ├── RunnerCrashed
    ├── RunnerTimeout
    └── OutOfMemory
"""

import re
from typing import Final

_TRIED: Final = re.compile(r"tried to allocate ([\d.]+ (?:bytes|[KMGT]iB))", re.IGNORECASE)


class GraphdocError(Exception):
    """Something went wrong."""

    remedy = ""

    def __init__(self, detail: str = "", remedy: str = "") -> None:
        """Builds the message. `detail` is the fault, `remedy` its remedy, each without a full stop."""
        summary = (type(self).__doc__ or "").strip().rstrip(".")
        super().__init__(f"{summary}: {detail}" if detail else summary)
        self.detail = detail
        self.remedy = remedy


class Refused(GraphdocError):
    """Refused."""


class DocumentRefused(Refused):
    """The graph document was refused."""


class TensorsRefused(Refused):
    """The tensor file was refused."""


class RunnerFailed(GraphdocError):
    """The runner did not finish the step."""


class RunnerCrashed(RunnerFailed):
    """The runner's child process ended without an answer."""


class RunnerTimeout(RunnerFailed):
    """The step took longer than its limit."""


class OutOfMemory(RunnerFailed):
    """The step found too little memory."""


def is_out_of_memory(error: Exception) -> bool:
    """Returns whether the error is one of the many by which libraries report a failed allocation."""
    words = ("allocate memory", "out of memory", "bad_alloc", "Cannot allocate", "STATUS_ALLOC_FAILED")
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)


def describe_exhaustion(error: Exception) -> str:
    """Returns the exhausted memory and the failed allocation; the rest of the text reveals the machine's other
    processes."""
    text = str(error)
    cause = "the card is full" if "CUDA" in text or "CUBLAS" in text else "its bound or the machine's memory is used up"
    tried = _TRIED.search(text)
    return f"{cause}: an allocation of {tried[1]} failed" if tried else cause
