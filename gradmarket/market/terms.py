"""The market's terms: ids, amounts, addresses, the states in the order data flows, plans of tasks, and digests."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NewType

from blake3 import blake3

from graphdoc.encoding import Bytes

Address = NewType("Address", str)
"""An Ethereum address with EIP-55 checksum, `0x` and 40 hex digits."""

Digest = NewType("Digest", str)
"""`blake3:` and 64 hex digits: the blake3 of a blob's bytes; a payload's is its root."""

Hash = NewType("Hash", bytes)
"""32 bytes: a secret, a salt, a seed, an EIP-712 digest, an instance."""

Amount = NewType("Amount", int)
"""Money in the token's smallest unit. Never a float."""

Units = NewType("Units", int)
"""Money in the job's unit, as the contract's uint64 ledger and every voucher count it."""

JobId = NewType("JobId", str)
TaskId = NewType("TaskId", str)
ReplicaId = NewType("ReplicaId", str)

REPRODUCIBLE: Final = "reproducible-1"
"""The determinism class of all x86 processors in a job of reproducible arithmetic; no machine may announce it."""
DOUBT: Final = 0.05
"""One minus the confidence of conclusions from samples: evidence of audits, and a test of losses."""


class JobState(StrEnum):
    DRAFT = "draft"
    AWAITING_FUNDS = "awaiting_funds"
    RUNNING = "running"
    PAUSED = "paused"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    FAILED = "failed"


class RoundState(StrEnum):
    """rewound: it began from a merge that an audit took back; it opens again once that round is merged again."""

    OPEN = "open"
    MERGING = "merging"
    CLOSED = "closed"
    REWOUND = "rewound"


class TaskState(StrEnum):
    """open: its wave needs workers; committing: all places are taken; revealing: the wave is closed.

    referred: an audit settles what the ballots leave open; uploading: one of those that are right is asked for the
    payload; accepted: used or not, an audit may still revoke it; final: nothing can.
    """

    OPEN = "open"
    COMMITTING = "committing"
    REVEALING = "revealing"
    REFERRED = "referred"
    UPLOADING = "uploading"
    ACCEPTED = "accepted"
    DIVERGED = "diverged"
    FAILED = "failed"
    CANCELLED = "cancelled"
    FINAL = "final"
    REVOKED = "revoked"


TASK_OVER: Final = frozenset({TaskState.FINAL, TaskState.REVOKED})
"""States that no audit can change any more."""
TASK_ENDED: Final = TASK_OVER | {TaskState.FAILED, TaskState.CANCELLED}
"""States in which a task's records no longer change."""
TASK_DECIDED: Final = frozenset({TaskState.ACCEPTED, TaskState.DIVERGED, *TASK_OVER})
TASK_COUNTED: Final = TASK_DECIDED | TASK_ENDED
"""States in which no worker commits to a task any more, nor has an answer to send."""


class ReplicaState(StrEnum):
    LEASED = "leased"
    COMMITTED = "committed"
    REVEALED = "revealed"
    AGREE = "agree"
    PAYABLE = "payable"
    DIVERGED = "diverged"
    REJECTED = "rejected"
    EXPIRED = "expired"
    ABANDONED = "abandoned"
    ERROR = "error"
    TOO_LATE = "too_late"
    NOT_NEEDED = "not_needed"
    WITHHELD = "withheld"
    INCONCLUSIVE = "inconclusive"


class AuditState(StrEnum):
    """due: nobody has run the task again; answered: an auditor has, and its answer is not yet processed.

    lapsed: no auditor of its class asked in time, and the task is done again.
    """

    DUE = "due"
    ANSWERED = "answered"
    PASSED = "passed"
    FAILED = "failed"
    LAPSED = "lapsed"


AUDIT_UNDER_WAY: Final = frozenset({AuditState.DUE, AuditState.ANSWERED})
"""States in which nobody but its auditors may see that the task is audited, or a result."""


class PanelSeatState(StrEnum):
    """taken: its auditor computes; sealed: it signed a sealed answer; opened: it opened the answer.

    heard: others opened another answer, and a referee hears them; left: it gave none in time; withheld: it did not open
    it in time; wrong: it opened another answer than decided.
    """

    TAKEN = "taken"
    SEALED = "sealed"
    OPENED = "opened"
    HEARD = "heard"
    LEFT = "left"
    WITHHELD = "withheld"
    WRONG = "wrong"


class CalibrationState(StrEnum):
    """gathering: too few trusted runs yet; refused: honest answers are too far apart for any threshold."""

    GATHERING = "gathering"
    CALIBRATED = "calibrated"
    REFUSED = "refused"


class ChangeVerdict(StrEnum):
    """The state of an operator's test; `open`: the scores decide nothing yet."""

    HONEST = "honest"
    OPEN = "open"
    CONVICTED = "convicted"


class AccusationState(StrEnum):
    """due: not on the chain yet; void: the worker had nothing at risk; the others are the contract's states."""

    DUE = "due"
    OPEN = "open"
    CONTESTED = "contested"
    SLASHED = "slashed"
    ACQUITTED = "acquitted"
    DISMISSED = "dismissed"
    VOID = "void"


class BatchState(StrEnum):
    PREPARED = "prepared"
    SENT = "sent"
    SETTLED = "settled"


class Role(StrEnum):
    """read: all that the requester may read; submit: also uploads, and posting and steering jobs of its own; audit: the
    auditor's routes and their reads; admin: all of it, every job, and tokens."""

    READ = "read"
    SUBMIT = "submit"
    AUDIT = "audit"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan for checking one task: a policy of rules.replication makes it, and the market publishes it."""

    first_wave: int
    """The number of workers in the first wave, the lead included."""
    quorum: int
    """Agreeing ballots that decide, if they are also more than half of all committed."""
    maximum: int
    """The most commitments: no worker is added beyond them."""
    audit: float = 0.0
    """The probability that the task is audited once it is accepted."""
    referred: bool = False
    """Whether an audit settles undecided ballots. An audit that is certain then precedes the acceptance."""

    def decides(self, committed: int, best: int) -> bool:
        """Returns whether `best` agreeing ballots of `committed` replicas are a quorum."""
        return best >= self.quorum and 2 * best > committed

    def next_wave(self, committed: int, best: int) -> int:
        """Returns the fewest further workers with whom the largest group could win, or 0 where it cannot."""
        further = range(1, self.maximum - committed + 1)
        return next((more for more in further if self.decides(committed + more, best + more)), 0)


def digest_text(hasher: blake3) -> Digest:
    """Returns the digest of the bytes that the hasher has read."""
    return Digest("blake3:" + hasher.hexdigest())


def blob_digest(data: Bytes) -> Digest:
    """Returns the digest of bytes in memory or in a mapped file."""
    return digest_text(blake3(data))


def domain_hash(tag: str, *parts: Bytes) -> Hash:
    """Returns H(tag, parts). Every part is preceded by its length, so no two lists share a preimage."""
    hasher = blake3(len(tag).to_bytes(8, "big") + tag.encode())
    for part in parts:
        hasher.update(len(part).to_bytes(8, "big"))
        hasher.update(part)
    return Hash(hasher.digest())
