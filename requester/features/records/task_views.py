"""Views of a task, its waves and replicas, and the verdicts on them."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from sqlalchemy import Row

from gradmarket.market.features.records import AllowedView, PlanView, ReplicaView, TaskEvidence, TaskView, WaveView
from gradmarket.market.gradient.projection import Sketch
from gradmarket.market.terms import Hash, TaskState
from gradmarket.market.views.payment_views import VerdictView
from gradmarket.market.views.trust_views import AuditView
from gradmarket.market.wire.poll import OfferFields
from requester.api.job_views import format_hex, format_time, sketch_view
from requester.store.tables import Replica, Task, Wave

DECIDED: Final = (TaskState.ACCEPTED, TaskState.DIVERGED, TaskState.FINAL, TaskState.REVOKED)
GATHERING: Final = (TaskState.OPEN, TaskState.COMMITTING)
STANDING: Final = (TaskState.FINAL, TaskState.REVOKED)
"""States of a task that no audit can change any more."""


def replica_view(row: Replica, shown: bool, sketch: Sketch | None) -> ReplicaView:
    return ReplicaView(
        id=row.id,
        worker=row.worker,
        payout=row.payout,
        state=row.state,
        wave=row.wave,
        reason=row.reason,
        leased_at=format_time(row.leased_at),
        committed_at=format_time(row.committed_at),
        compute_seconds=row.compute_seconds,
        sealed=format_hex(row.sealed) if shown else None,
        commitment_signature=format_hex(row.signature) if shown else None,
        salt=format_hex(row.salt) if shown else None,
        root=row.root if shown else None,
        determinism_class=row.determinism_class if shown else None,
        sketch=sketch_view(sketch) if shown else None,
        sketch_signature=format_hex(row.sketch_signature) if shown else None,
        outcome=row.outcome,
        verdict_root=row.verdict_root if shown else None,
        verdict_signature=format_hex(row.verdict_signature) if shown else None,
    )


def wave_view(row: Wave) -> WaveView:
    return WaveView(
        number=row.number,
        secret=format_hex(row.secret),
        commitments=format_hex(row.commitments),
        seed=format_hex(row.seed),
        signature=format_hex(row.signature),
        closed_at=format_time(row.closed_at),
    )


def task_view(row: Task, published: bool) -> TaskView:
    """Returns the view of a task. `published`: its answer may be shown (store.disclosure)."""
    return TaskView(**_task_fields(row, published))


def _task_fields(row: Task, published: bool) -> dict[str, Any]:
    return {
        "id": row.id,
        "round": row.round,
        "index": row.index,
        "attempt": row.attempt,
        "state": row.state,
        "wave": row.wave,
        "reason": row.reason,
        "root": row.root if published and row.state in DECIDED else None,
        "payload_bytes": row.payload_bytes,
        "used": row.used,
        "merge_round": row.merge_round,
        "created_at": format_time(row.created_at),
        "ended_at": format_time(row.ended_at),
    }


def build_task_evidence(
    row: Task,
    waves: list[Wave],
    replicas: list[Replica],
    published: bool,
    link: Hash,
    audit: tuple[AuditView | None, bool],
    sketches: Mapping[str, Sketch],
) -> TaskEvidence:
    """Returns all evidence of a verdict. `published`: the task's answer may be shown (store.disclosure).

    `audit` is a Review's view of it; `sketches` are the replicas', by their ids.
    """
    audited, settled = audit
    over = row.state in STANDING or settled
    # replicas of an open wave are hidden: a worker that sees its siblings, or that it has none, could cheat
    shown = [one for one in replicas if published or one.wave != row.wave or row.state not in GATHERING]
    return TaskEvidence(
        **_task_fields(row, published),
        offer=OfferFields.of(row.offer).model_dump(mode="json"),
        offer_digest=format_hex(row.offer_digest),
        offer_signature=format_hex(row.offer_signature),
        waves=[wave_view(wave) for wave in waves],
        replicas=[replica_view(replica, published, sketches.get(replica.id)) for replica in shown],
        allowed=[AllowedView(**pair) for pair in row.allowed] if published and row.allowed is not None else None,
        plan=PlanView(**asdict(row.plan)) if over else None,
        audit_link=format_hex(link) if over else None,
        audit=audited if over else None,
    )


def verdict_view(row: Row[*tuple[Any, ...]]) -> VerdictView:
    """Builds the view of a row of record_lists.select_verdicts."""
    return VerdictView(
        task=row.task_id,
        replica=row.id,
        worker=row.worker,
        state=row.state,
        outcome=row.outcome,
        reason=row.reason,
        signature=format_hex(row.verdict_signature),
    )
