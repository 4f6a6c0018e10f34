"""Composes the signed verdicts and vouchers that workers get by poll, by upload and in their accounts."""

from gradmarket.market.messages import Outcome
from gradmarket.market.terms import JobId, ReplicaId
from gradmarket.market.wire.poll import SignedVerdict, SignedVoucher
from requester.store.tables import Account, Replica, Task

PROMISES = (Outcome.ACCEPTED, Outcome.DIVERGED)
"""Outcomes whose verdict names the price, whatever the replica's state is afterwards."""


def build_signed_verdict(replica: Replica, task: Task) -> SignedVerdict:
    promised = replica.outcome in PROMISES
    return SignedVerdict(
        replica=ReplicaId(replica.id),
        state=replica.state,
        outcome=replica.outcome,
        root=replica.verdict_root,
        price=task.offer.price if promised else 0,
        reason=replica.reason,
        signature=replica.verdict_signature,
    )


def build_signed_voucher(account: Account | None, chain_job: int | None) -> SignedVoucher | None:
    """Returns the worker's newest voucher in the job, by the contract's number of it; None if it has earned nothing."""
    if account is None or account.voucher_signature is None:
        return None
    return SignedVoucher(
        job=JobId(account.job_id),
        chain_job=chain_job or 0,
        cumulative=account.promised,
        signature=account.voucher_signature,
    )
