"""The leaves of a job's log: rows that are only ever added, for each record of the job that has none yet.

They are added when a batch is about to be settled, which carries the log's head. Once the job has ended, each
transaction with an event of it adds its own: a head that is signed then covers the records of every task that is over.
"""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, ForeignKey, String, UniqueConstraint, cast, exists, func, select
from sqlalchemy.orm import Mapped, mapped_column

from contracts import events, log_heads
from gradmarket.market.features.log import job_log
from gradmarket.market.features.log.merkle import GrowingTree, hash_leaf
from gradmarket.market.messages import LogHead
from gradmarket.market.terms import TASK_COUNTED, BatchState, Hash, RoundState
from gradmarket.market.wire.log_proofs import LeafKind, PublishedRestart
from requester.chain.chain_context import ChainContext
from requester.feature import LogRecords, features_of
from requester.store.tables import Base, Batch, Earned, Job, Replica, Round, Task, Wave
from requester.store.work import RowReader, Work


class LogLeaf(Base):
    """One leaf; `about` names its record, and no record of a kind has two."""

    __tablename__ = "log_leaves"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    kind: Mapped[str]
    about: Mapped[str]
    hash: Mapped[Hash]

    __table_args__ = (UniqueConstraint("job_id", "kind", "about", name="log_leaf_once"),)


def extend_log(chain: ChainContext, job_id: str) -> LogHead | None:
    """Adds the leaves of all records that have none, and returns the head over all; None for a job without any.

    A head that only the chain knows may be from before the service was restored. Where the log does not lead to it, a
    leaf admits that: a head over other leaves would be a fork.
    """
    # the heads, by batch, of the batches that the contract has and the books do not know as settled
    with chain.reading() as reader:
        chain_job = reader.get_one(Job, job_id).chain_job or 0
        settled = select(Batch.number).where(Batch.job_id == job_id, Batch.state == BatchState.SETTLED)
        known = set(reader.session.scalars(settled))
    unknown = [number for number in range(chain.ledger.job(chain_job).batches) if number not in known]
    groups = ((number, events.settled_groups(chain.ledger, chain_job, number)) for number in unknown)
    heads = ((number, log_heads.parse_head(chain_job, group)) for number, found in groups for group in found)
    carried = {number: head for number, head in heads if head is not None}
    with chain.begin() as work:
        job = work.get_one(Job, job_id)
        append_leaves(work, job)
        admitted, now = {restart.batch for restart in list_restarts(work, job_id)}, int(chain.clock())
        carried = {batch: head for batch, head in carried.items() if batch not in admitted}
        tree = load_tree(work, job_id) if carried else GrowingTree()
        lost = [(batch, head) for batch, head in carried.items() if job_log.is_ahead(tree, head)]
        for place, (batch, head) in enumerate(lost, len(tree)):
            leaf = Hash(hash_leaf(job_log.encode_restart(batch, head, now)))
            about = f"{batch}/{now}"
            work.add(LogLeaf(job_id=job_id, number=place, kind=LeafKind.RESTART.value, about=about, hash=leaf))
        work.flush()
        tree = load_tree(work, job_id)
        return LogHead(job.chain_job or 0, len(tree), Hash(tree.compute_root())) if len(tree) else None


def append_leaves(work: Work, job: Job) -> None:
    work.one_at_a_time(f"log of {job.id}")
    new = list[tuple[LeafKind, str, bytes]]()
    kernels = (LogRecords(*record, _ORDERS[record[0]]) for record in _RECORDS)
    of_features = (record for feature in features_of(work) for record in feature.log_records)
    for one in (*kernels, *of_features):
        logged = exists().where(LogLeaf.job_id == job.id, LogLeaf.kind == one.kind.value, LogLeaf.about == one.about)
        rows = select(one.about, *one.columns).where(*one.of_job(job.id), ~logged).order_by(*one.order)
        for name, *fields in work.session.execute(rows).all():
            if one.is_open(work, name, fields):
                new.append((one.kind, name, one.encode(*fields)))
    for number, (kind, about, data) in enumerate(new, count_leaves(work, job.id)):
        work.add(LogLeaf(job_id=job.id, number=number, kind=kind.value, about=about, hash=Hash(hash_leaf(data))))
    work.flush()


def list_restarts(reader: RowReader, job_id: str) -> tuple[PublishedRestart, ...]:
    admitted = select(LogLeaf).where(LogLeaf.job_id == job_id, LogLeaf.kind == LeafKind.RESTART.value)
    rows = reader.session.scalars(admitted.order_by(LogLeaf.number))
    parsed = ((row.number, *map(int, row.about.split("/"))) for row in rows)
    return tuple(PublishedRestart(number=number, batch=batch, at=at) for number, batch, at in parsed)


def count_leaves(reader: RowReader, job_id: str) -> int:
    return reader.session.scalar(select(func.count()).where(LogLeaf.job_id == job_id)) or 0


def load_tree(reader: RowReader, job_id: str) -> GrowingTree:
    hashes = select(LogLeaf.hash).where(LogLeaf.job_id == job_id).order_by(LogLeaf.number)
    return GrowingTree(reader.session.scalars(hashes))


def find_leaf(reader: RowReader, job_id: str, kind: str, about: str) -> LogLeaf | None:
    where = (LogLeaf.job_id == job_id, LogLeaf.kind == kind, LogLeaf.about == about)
    return reader.session.scalar(select(LogLeaf).where(*where))


def _text(column: Any) -> ColumnElement[str]:
    return cast(column, String)


_COUNTED: Final = sorted(TASK_COUNTED)
_COMMITTED: Final = (
    select(func.count()).where(Replica.task_id == Task.id, Replica.sealed.is_not(None)).scalar_subquery()
)
_OFFERED: Final = (Task.id == Replica.task_id,)
_RECORDS: Final[Sequence[tuple[LeafKind, Any, Sequence[Any], Any, Any]]] = (
    (
        LeafKind.OFFER,
        Task.id,
        (Task.offer_digest, Task.offer_signature),
        lambda job: (Task.job_id == job,),
        job_log.encode_offer,
    ),
    (
        LeafKind.ATTEMPT,
        Task.id,
        (Task.round, Task.index, Task.attempt, _COMMITTED),
        lambda job: (Task.job_id == job, Task.state.in_(_COUNTED)),
        job_log.encode_attempt,
    ),
    (
        LeafKind.WAVE,
        Wave.task_id + "/" + _text(Wave.number),
        (Task.offer_digest, Wave.number, Wave.secret, Wave.commitments, Wave.signature),
        lambda job: (Task.id == Wave.task_id, Task.job_id == job),
        job_log.encode_wave,
    ),
    (
        LeafKind.COMMITMENT,
        Replica.id,
        (Task.offer_digest, Replica.worker, Replica.sealed, Replica.signature),
        lambda job: (*_OFFERED, Replica.job_id == job, Replica.sealed.is_not(None), Replica.signature.is_not(None)),
        job_log.encode_commitment,
    ),
    (
        LeafKind.REVEAL,
        Replica.id,
        (Task.offer_digest, Replica.worker, Replica.salt, Replica.root),
        lambda job: (
            *(*_OFFERED, Replica.job_id == job, Replica.verdict_signature.is_not(None)),
            *(Replica.sealed.is_not(None), Replica.salt.is_not(None), Replica.root.is_not(None)),
        ),
        job_log.encode_reveal,
    ),
    (
        LeafKind.VERDICT,
        Replica.id + "/" + _text(Replica.outcome),
        (Task.offer_digest, Replica.worker, Replica.outcome, Replica.verdict_signature),
        lambda job: (*_OFFERED, Replica.job_id == job, Replica.verdict_signature.is_not(None)),
        job_log.encode_verdict,
    ),
    (
        LeafKind.ROUND,
        _text(Round.number) + "/" + Round.updated,
        (Round.number, Round.parameters, Round.updated),
        lambda job: (Round.job_id == job, Round.state == RoundState.CLOSED, Round.updated.is_not(None)),
        job_log.encode_round,
    ),
    (
        LeafKind.PAYMENT,
        _text(Earned.id),
        (Earned.replica_id, Earned.worker, Earned.units, Earned.digest),
        lambda job: (Earned.job_id == job,),
        job_log.encode_payment,
    ),
)
"""For each kind: the name of a record, the columns in its leaf, the conditions on its rows, and the leaf's encoding."""
_ORDERS: Final[dict[LeafKind, Sequence[Any]]] = {
    LeafKind.OFFER: (Task.round, Task.index, Task.attempt),
    LeafKind.ATTEMPT: (Task.round, Task.index, Task.attempt),
    LeafKind.WAVE: (Wave.task_id, Wave.number),
    LeafKind.COMMITMENT: (Replica.id,),
    LeafKind.REVEAL: (Replica.id,),
    LeafKind.VERDICT: (Replica.id,),
    LeafKind.ROUND: (Round.number,),
    LeafKind.PAYMENT: (Earned.id,),
}
