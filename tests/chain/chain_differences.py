"""Differences between database and chain: none, once a ledger's outcomes are recorded."""

from collections import Counter

from sqlalchemy import select

from contracts.proofs import batch_root
from gradmarket.market.terms import BatchState, Hash
from requester.chain import escrow
from requester.chain.chain_context import ChainContext
from requester.store.tables import Account, Batch, Earned, Job
from requester.store.work import RowReader


def list_chain_differences(chain: ChainContext, job_id: str) -> list[str]:
    """Returns the differences between database and chain, in words; empty where they are equal."""
    with chain.reading() as reader:
        job = reader.get_one(Job, job_id)
        accounts = reader.session.scalars(select(Account).where(Account.job_id == job_id)).all()
        settled = (Batch.job_id == job_id, Batch.state == BatchState.SETTLED)
        batches = reader.session.scalars(select(Batch).where(*settled)).all()
        roots = {batch.number: _compute_root(reader, batch, job.chain_job or 0) for batch in batches}
        credited = Counter[str]()
        for row in reader.session.scalars(select(Earned).join(Batch, Batch.id == Earned.batch_id).where(*settled)):
            credited[row.worker] += row.units
    chain_job = job.chain_job or 0
    now = chain.ledger.job(chain_job)
    lines = [_describe_difference("batches", len(roots), now.batches)]
    lines.append(_describe_difference("deposited less refunded", job.deposited - job.refunded, now.deposited))
    for number, root in roots.items():
        lines.append(
            _describe_difference(
                f"root of batch {number}", root.hex(), chain.ledger.batch_root(chain_job, number).hex()
            )
        )
    for row in accounts:
        on_chain = chain.ledger.account(chain_job, row.worker)
        lines.append(_describe_difference(f"settled for {row.worker}", credited[row.worker], on_chain.settled))
        lines.append(_describe_difference(f"copy of {row.worker}'s settled", row.settled, on_chain.settled))
        lines.append(_describe_difference(f"reserved for {row.worker}", row.reserved, on_chain.reserved))
        lines.append(_describe_difference(f"withdrawn by {row.worker}", row.withdrawn, on_chain.withdrawn))
    return [line for line in lines if line]


def _compute_root(reader: RowReader, batch: Batch, chain_job: int) -> Hash:
    rows = reader.session.scalars(select(Earned).where(Earned.batch_id == batch.id).order_by(Earned.id)).all()
    return batch_root(escrow.groups_of_batch(rows, escrow.head_of_batch(batch, chain_job)))


def _describe_difference(what: str, books_say: object, chain_says: object) -> str:
    return "" if books_say == chain_says else f"{what}: books {books_say}, chain {chain_says}"
