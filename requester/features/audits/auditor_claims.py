"""Gives audits to auditors and takes their answers. The auditor of a blind audit does not learn the accepted answer.

If no audit is due in the auditor's class, it gets other work from a kind of audits, if any has some. A scored audit
cannot be blind: its auditor gets the accepted payload, and answers with its own root nevertheless.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

from gradmarket.market.errors import Conflict, NotFound, Refused
from gradmarket.market.features.audits import auditing
from gradmarket.market.messages import Offer
from gradmarket.market.rules import sketch_packing
from gradmarket.market.terms import AuditState, Hash, TaskState
from gradmarket.market.wire.audit_messages import AuditAnswer, ScoreTask, WindowTask
from requester.context import Context
from requester.features.audits import audit_rows, audited_classes
from requester.features.audits.audit_kind import Asker, OtherWork, audit_kinds_of
from requester.features.audits.audit_tables import Audit
from requester.store import ballots
from requester.store.locks import lock_row
from requester.store.tables import Job, Task, Wave
from requester.store.work import RowReader


@dataclass(frozen=True, slots=True)
class Claimed:
    """A task to be computed again as run `run`; for `seconds` no other auditor gets it.

    If `wave_seed` is set, the answer includes a sketch under it. `calibrates`: the task passed its audit in another
    class. If `score` is set, the answer includes the score of that payload.
    """

    task: str
    job: str
    offer: Offer
    run: int
    seconds: float
    wave_seed: Hash | None = None
    calibrates: bool = False
    planted: bool = False
    score: ScoreTask | None = None
    brings: bool = False
    """Whether the auditor must bring the payload itself (auditor_payloads)."""
    window: WindowTask | None = None
    """Two windows to repeat, in place of the whole task."""
    panel: Literal["seal", "open"] | None = None
    """The auditor's next step in the panel that audits the task."""


def renew_held_audit(context: Context, asker: Asker, task_id: str) -> None:
    """Records that an auditor still computes an audit: it is present, and the audit stays its own."""
    now = context.clock()
    with context.begin() as work:
        audited_classes.record_asking_auditor(work, asker.determinism_class, now)
        audit_rows.renew_claim(work, task_id, asker.auditor, now)
        for kind in audit_kinds_of(work):
            kind.renew_claim(work, task_id, asker, now)


def claim_next_audit(context: Context, asker: Asker) -> Claimed | None:
    """Claims the next audit that machines of this class may run, or else other work, if any.

    Work that others wait for comes first: seals to be opened, and a payload that an auditor found and no worker. Audits
    that kinds give out themselves take turns with the others.
    """
    now, determinism_class = context.clock(), asker.determinism_class
    with context.begin() as work:
        audited_classes.record_asking_auditor(work, determinism_class, now)
        kinds = audit_kinds_of(work)
        if (other := next(filter(None, (kind.find_owed_work(work, asker) for kind in kinds)), None)) is not None:
            return _build_other(work, other)
        owed = audit_rows.next_owed(work, determinism_class, now)
        rivals = list(filter(None, (kind.find_turn(work, asker, now) for kind in kinds)))
        audit = owed or audit_rows.next_due(work, determinism_class, now, rivals)
        if audit is None:
            if (other := next(filter(None, (kind.take_turn(work, asker, now) for kind in kinds)), None)) is not None:
                return _build_other(work, other)
            audit = audit_rows.next_due(work, determinism_class, now) if rivals else None
        if audit is None:
            others = (kind.find_other_work(work, asker, now) for kind in kinds)
            other = next(filter(None, others), None)
            return None if other is None else _build_other(work, other)
        task = work.get_one(Task, audit.task_id)
        audit.auditor, audit.claims = asker.auditor, audit.claims + 1
        audit.claimed_at, audit.claimed_until = now, now + task.offer.lease_seconds
        if owed is not None:
            return replace(_build_claimed(work, task, audit.runs), brings=True)
        more: dict[str, Any] = {}
        for kind in kinds:
            more |= kind.describe_claim(context, work, task, audit)
        return replace(_build_claimed(work, task, audit.runs), **more)


def _build_other(reader: RowReader, other: OtherWork) -> Claimed:
    task = reader.get_one(Task, other.task)
    return replace(_build_claimed(reader, task, other.run), **dict[str, Any](other.fields))


def _build_claimed(reader: RowReader, task: Task, runs: int) -> Claimed:
    # the seed that the task's replicas sketched under; None if their roots were compared
    seed = None if task.allowed is None else Hash(reader.get_one(Wave, (task.id, task.wave)).seed)
    return Claimed(task.id, task.job_id, task.offer, runs, float(task.offer.lease_seconds), seed)


def record_audit_answer(context: Context, task_id: str, answer: AuditAnswer) -> bool:
    """Takes the payload root that a run computed; returns whether the auditor is to run the task once more.

    Repeating the answer of a run changes nothing. Raises Conflict for another answer of the same run, and for a run of
    an auditor that did not claim the audit last; Refused if a score or sketch is missing or was not asked for.
    """
    with context.begin() as work:
        if work.get(Audit, task_id) is None:
            raise NotFound(f"no audit of task {task_id[:80]}")
        task, audit = lock_row(work, Task, task_id), lock_row(work, Audit, task_id)
        if audit.state != AuditState.DUE or answer.run < audit.runs:
            if audit.root != answer.root:
                raise Conflict(f"the audit is {audit.state}, and its run {audit.runs - 1} gave another result")
            return audit.state == AuditState.DUE
        if (answer.auditor, answer.run) != (audit.auditor, audit.runs):
            raise Conflict(f"run {audit.runs} of the audit was claimed by another auditor: claim one")
        passes: bool | None
        if task.state == TaskState.REFERRED:
            passes = auditing.judge_referral(audit_rows.list_revealed_roots(work, task.id), answer.root, audit.root)
        else:
            passes = audit.scored or auditing.judge_audit(task.root or "", answer.root, audit.root)
        kinds = audit_kinds_of(work)
        for kind in kinds:
            kind.store_answer(work, task, audit, answer)
        # the tensors that its sketch must have; None where the task's replicas were not compared by sketches
        names = None if task.allowed is None else ballots.list_tensor_names(work.get_one(Job, task.job_id))
        sketch = answer.sketch
        if (None if sketch is None else sketch.keys()) != (None if names is None else set(names)):
            raise Refused("the answer has no sketch of just the tensors that an answer in this job has")
        audit.sketch = (
            None
            if sketch is None or names is None
            else sketch_packing.pack_sketch(sketch_packing.decode_sketch(sketch), names)
        )
        audit.runs += 1
        audit.root, audit.seconds = answer.root, answer.seconds
        work.flush()
        if passes is None:
            for kind in kinds:
                kind.order_another_run(context, work, task, audit)
            audit.claimed_until = context.clock() + task.offer.lease_seconds
            return True  # logged only when the audit ends: an event now would reveal that the task is audited
        work.set_state_now(audit, AuditState.ANSWERED, claimed_until=None)
        work.notify("audit")
        return False
