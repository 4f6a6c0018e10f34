"""The errors of the market as one tree. The docstring of an error is the first line of its message.

MarketError
├── Refused                 bytes or a request that break a rule; nothing was changed
│   ├── DocumentRefused     a graph document
│   ├── TensorsRefused      safetensors, npz or another tensor file
│   ├── PayloadRefused      a gradient's bytes
│   ├── JobRefused          a job specification
│   └── SignatureRefused    a signature, or what was signed
├── IllegalTransition       a state change that its entity's table does not allow
├── Conflict                the same message came before with other content
├── NotFound                no such row or blob
└── RunnerFailed            the child process that computes
    ├── RunnerCrashed
    ├── RunnerTimeout
    └── OutOfMemory
"""


class MarketError(Exception):
    """Something went wrong in the market."""

    remedy = ""

    def __init__(self, detail: str = "", remedy: str = "") -> None:
        """`detail` is what is wrong, `remedy` what to do about it, each without a full stop."""
        summary = (type(self).__doc__ or "").strip().rstrip(".")
        super().__init__(f"{summary}: {detail}" if detail else summary)
        self.detail = detail
        self.remedy = remedy


class Refused(MarketError):
    """Refused."""


class DocumentRefused(Refused):
    """The graph document was refused."""


class TensorsRefused(Refused):
    """The tensor file was refused."""


class PayloadRefused(Refused):
    """The payload was refused."""


class JobRefused(Refused):
    """The job was refused."""

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(f"{field}: {detail}")
        self.field = field


class SignatureRefused(Refused):
    """The signature was refused."""


class IllegalTransition(MarketError):
    """There is no such step in this entity's life."""


class Conflict(MarketError):
    """It was said before, differently."""


class NotFound(MarketError):
    """There is no such thing."""


class RunnerFailed(MarketError):
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
