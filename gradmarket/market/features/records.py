"""Estimates the hourly pay of a worker that joins a job, by the measurements of its newest rounds."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median
from typing import Any, Final

from gradmarket.market.fields import DeferredModel
from gradmarket.market.terms import ReplicaState, TaskState
from gradmarket.market.views.trust_views import AuditView
from gradmarket.market.wire.hearing_messages import PublishedHearing

WINDOW_S: Final = 3600.0
"""Seconds after which a closed round no longer counts."""
ROUNDS: Final = 10
"""Newest rounds that are measured."""


@dataclass(frozen=True, slots=True)
class PaidAnswer:
    """One worker's paid answer of a round: its units, and the seconds from its lease to its pay."""

    worker: str
    units: int
    seconds: float


def estimate_hourly_pay(lasted: Sequence[float], paid: Sequence[PaidAnswer]) -> float | None:
    """Returns the units an hour of a worker that joins those that were `paid`, in rounds that `lasted` these seconds.

    A round's answers are shared among all workers, in turns of one answer each. One more worker shortens a round by the
    turns that it saves, and where there are no more answers than workers, it saves none and has its share of the
    waiting. None where no round has closed or nobody was paid.
    """
    if not lasted or not paid:
        return None
    workers, answers = len({one.worker for one in paid}), len(paid) / len(lasted)
    turn_s, round_s = median(one.seconds for one in paid), median(lasted)
    turns, fewer = ceil(answers / workers), ceil(answers / (workers + 1))
    shortened = max(fewer * turn_s, round_s - (turns - fewer) * turn_s)
    units = sum(one.units for one in paid) / len(lasted) / (workers + 1)
    return units * 3600 / shortened if shortened > 0 else None


class ReplicaView(DeferredModel):
    """Ballot, salt and signatures are none as long as another attempt at the task could copy them."""

    id: str
    worker: str
    payout: str
    state: ReplicaState
    wave: int
    reason: str
    leased_at: str | None
    committed_at: str | None
    compute_seconds: float | None
    sealed: str | None
    commitment_signature: str | None
    salt: str | None
    root: str | None
    determinism_class: str | None
    sketch: dict[str, str] | None
    """Each tensor's 64 float32, little-endian, as `0x…`; null unless the job compares sketches."""
    sketch_signature: str | None
    outcome: int | None
    verdict_root: str | None
    """The root in the signed verdict: the replica's own, or one of the quorum."""
    verdict_signature: str | None


class WaveView(DeferredModel):
    number: int
    secret: str | None
    commitments: str | None
    seed: str | None
    signature: str | None
    closed_at: str | None


class TaskView(DeferredModel):
    id: str
    round: int
    index: int
    attempt: int
    state: TaskState
    wave: int
    reason: str
    root: str | None
    payload_bytes: int | None
    used: bool
    merge_round: int
    """The round whose merge it is for: its own, or a later one where it was late."""
    created_at: str | None
    ended_at: str | None


class PlanView(DeferredModel):
    """Replicas asked first, agreeing ballots that decide, replicas at most, and the probability of an audit.

    `referred`: an audit settles what the ballots leave open, before anything is accepted.
    """

    first_wave: int
    quorum: int
    maximum: int
    audit: float
    referred: bool = False


class AllowedView(DeferredModel):
    """How far the tensors of two determinism classes may deviate: market.rules.verifiers.tolerance."""

    classes: tuple[str, str]
    tau: dict[str, float]


class TaskEvidence(TaskView):
    """All that a verdict rests on: offer, waves, and every replica with its ballot.

    Ballots and the found root are published once no other attempt can follow: it would have the same answer.
    """

    offer: dict[str, Any]
    offer_digest: str | None
    offer_signature: str | None
    waves: list[WaveView]
    replicas: list[ReplicaView]
    allowed: list[AllowedView] | None
    """The thresholds for its sketches, if the job compares sketches; shown together with the ballots."""
    plan: PlanView | None
    """How it was checked. Shown once no audit can change the task: a worker that knew it could cheat accordingly."""
    audit_link: str | None
    """The last link of the chain to the offer's anchor, which draws the audit (market.features.audits.auditing.drawn).

    Shown once no audit can change the task.
    """
    audit: AuditView | None
    hearings: list[PublishedHearing] | None = None
    """A referee's hearings of answers that differ, where the job has one; shown with the ballots."""


class PaymentView(DeferredModel):
    """One accepted gradient, or its worth over its price, and the batch that carries it on-chain."""

    id: int
    worker: str
    task: str
    replica: str
    amount: str
    payload_root: str | None
    batch: int | None
    batch_state: str | None
    tx: str | None
    at: str | None
    waits: bool
