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


class GraphdocError(Exception):
    """Something went wrong."""

    remedy = ""

    def __init__(self, detail: str = "", remedy: str = "") -> None:
        """`detail` is what is wrong, `remedy` what to do about it, each without a full stop."""
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
    """The step needed more memory than its limit."""


def says_out_of_memory(error: Exception) -> bool:
    """Returns whether the error is one of the many by which libraries say that an allocation failed."""
    words = ("allocate memory", "out of memory", "bad_alloc", "Cannot allocate")
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)
