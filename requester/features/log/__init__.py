"""The append-only log of each job: its leaves, the heads that batches carry on-chain, and proofs (log.job_log)."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from starlette.datastructures import State

from gradmarket.market.errors import NotFound
from gradmarket.market.features.log.job_log import ConsistencyProof, LeafProof
from gradmarket.market.features.log.merkle import GrowingTree
from gradmarket.market.fields import NO_NUL
from gradmarket.market.messages import LogHead
from gradmarket.market.terms import Hash
from gradmarket.market.wire.log_proofs import LeafHashes, LeafKind, PublishedHead
from requester.api.auth_routes import Here
from requester.api.job_routes import NO_JOB, JobPath, job_or_404
from requester.api.paging import MOST
from requester.chain.chain_context import ChainContext
from requester.context import Context
from requester.feature import Feature
from requester.features.answer_cache import Recent, Source
from requester.features.log import leaf_rows
from requester.store.tables import Job, JobEvent
from requester.store.work import RowReader, Work

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
Size = Annotated[int, Query(ge=0, le=MOST, description="Leaves of the log that it is for")]
AT_ONCE: Final = 2000
"""Hashes in one answer."""
ABOUT: Final = (
    "The record: a task, a task/wave, a task/hearing, a task/run/auditor, a replica, a replica/outcome, "
    "a round/parameters, a payment's number, or a batch/time"
)
EMPTY: Final = "the log has no leaf yet: it gets the first ones with the job's first batch"


@router.get("/{job_id}/log", operation_id="get_log", responses=NO_JOB, summary="The newest head of the job's log")
def get_log(context: Here, request: Request, source: Source, job_id: JobPath) -> PublishedHead:
    with context.reading() as reader:
        job = job_or_404(reader, job_id)
        tree = _load_tree(request, reader, job, source)
        restarts = leaf_rows.list_restarts(reader, job_id)
    if not len(tree):
        raise NotFound(EMPTY)
    head = LogHead(job.chain_job or 0, len(tree), Hash(tree.compute_root()))
    return PublishedHead(job=head.job, size=head.size, root=head.root, signature=context.sign(head), restarts=restarts)


@router.get(
    "/{job_id}/log/leaves",
    operation_id="list_leaves",
    responses=NO_JOB,
    summary="The hashes of the log's leaves, in order",
)
def list_leaves(
    context: Here,
    request: Request,
    source: Source,
    job_id: JobPath,
    first: Annotated[int, Query(ge=0, le=MOST, description="Number of the first leaf")] = 0,
    size: Size = MOST,
) -> LeafHashes:
    with context.reading() as reader:
        tree = _load_tree(request, reader, job_or_404(reader, job_id), source)
    return LeafHashes(first=first, hashes=tuple(map(Hash, tree.leaves[first : min(size, first + AT_ONCE)])))


@router.get(
    "/{job_id}/log/leaves/{kind}",
    operation_id="get_leaf",
    responses=NO_JOB,
    summary="That the record is in the log",
)
def get_leaf(
    context: Here,
    request: Request,
    source: Source,
    job_id: JobPath,
    kind: LeafKind,
    about: Annotated[str, Query(max_length=200, pattern=NO_NUL, description=ABOUT)],
    size: Size,
) -> LeafProof:
    with context.reading() as reader:
        job = job_or_404(reader, job_id)
        leaf = leaf_rows.find_leaf(reader, job_id, kind, about)
        if leaf is None or leaf.number >= size:
            raise NotFound(f"the log of {size} leaves has no {kind} {about[:80]}")
        path = _load_tree(request, reader, job, source).prove_inclusion(leaf.number, size)
        return LeafProof(number=leaf.number, size=size, path=tuple(map(Hash, path)))


@router.get(
    "/{job_id}/log/consistency",
    operation_id="get_consistency",
    responses=NO_JOB,
    summary="That an earlier log is a prefix",
)
def get_consistency(
    context: Here,
    request: Request,
    source: Source,
    job_id: JobPath,
    old: Annotated[int, Query(ge=0, le=MOST, description="Leaves of the earlier log")],
    size: Size,
) -> ConsistencyProof:
    with context.reading() as reader:
        path = _load_tree(request, reader, job_or_404(reader, job_id), source).prove_consistency(old, size)
    return ConsistencyProof(old=old, size=size, path=tuple(map(Hash, path)))


def _load_tree(request: Request, reader: RowReader, job: Job, source: str | None) -> GrowingTree:
    kept: Recent[GrowingTree] = request.app.state.logs
    return kept.get(
        job.id, str(leaf_rows.count_leaves(reader, job.id)), source, partial(leaf_rows.load_tree, reader, job.id)
    )


class LogFeature(Feature):
    name = "log"
    needs = ("answer_cache",)
    routers = (router,)

    def extend_log(self, chain: ChainContext, job_id: str) -> LogHead | None:
        return leaf_rows.extend_log(chain, job_id)

    def job_collected(self, work: Work, job: Job, now: float) -> None:
        leaf_rows.append_leaves(work, job)

    def events_recorded(self, work: Work, events: Sequence[JobEvent]) -> None:
        jobs = (work.get_one(Job, job_id) for job_id in sorted({event.job_id for event in events}))
        for job in jobs:
            if job.ended_at is not None:
                leaf_rows.append_leaves(work, job)

    def open_caches(self, state: State, context: Context) -> None:
        state.logs = Recent[GrowingTree](state.strangers_share)
