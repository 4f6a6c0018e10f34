"""Turns the requester's rows into calls to the contract. Pure: rows in, calldata out."""

from collections.abc import Iterable, Sequence
from typing import Final

from contracts import calls, log_heads
from contracts.calls import Call
from contracts.packing import PackedGroup, group_by_worker
from gradmarket.market.messages import LogHead
from gradmarket.market.terms import Address, Amount, Digest, Hash, Units
from gradmarket.market.wire.poll import hash_of
from requester.store import jobs
from requester.store.tables import Batch, Earned, Job

MAX_BATCH_BYTES: Final = 120_000
"""Most bytes of packed groups in a batch: a transaction has at most 128 KiB."""
MAX_BATCH_GAS: Final = 12_000_000
"""Most gas of a batch, by the measured figures below; stays under the 2^24 of EIP-7825 with a margin."""
GRADIENT_BYTES, GROUP_BYTES = 32, 28
GRADIENT_GAS, GROUP_GAS = 1_400, 60_000
MAX_ALLOWANCE: Final = Amount(2**256 - 1)


def build_approval_call(token: Address, market: Address) -> Call:
    """Returns the call by which the contract may pull the deposits of this job and of all later ones."""
    return calls.approve(token, market, MAX_ALLOWANCE)


def build_opening_terms(job: Job, signer: Address, expiry: int, claim_until: int, endpoint: str) -> calls.OpenJob:
    """Returns the call's terms: the job's budget under the digest of its publication."""
    return calls.OpenJob(
        amount=Units(job.budget),
        unit=Amount(int(job.unit)),
        expiry=expiry,
        claim_until=claim_until,
        voucher_signer=signer,
        spec_digest=spec_digest(job),
        endpoint=endpoint,
    )


def spec_digest(job: Job) -> Hash:
    return hash_of(Digest(job.spec_digest or ""))


def expiry_of(job: Job, now: float, lifetime_s: int) -> int:
    """Returns the Unix time until which the job reserves: its own end, or `lifetime_s` from now."""
    end = jobs.load_spec(job).deadlines.end
    return int(end.timestamp()) if end is not None else int(now) + lifetime_s


def groups_of(rows: Iterable[Earned]) -> list[PackedGroup]:
    """Packs EARNED rows into a batch's groups; the same rows in the same order always give the same bytes."""
    return group_by_worker((row.worker, Units(row.units), row.digest) for row in rows)


def groups_of_batch(rows: Iterable[Earned], head: LogHead | None) -> list[PackedGroup]:
    """Packs the rows, and the head of the job's log behind them."""
    return [*groups_of(rows), *([] if head is None else [log_heads.build_head_group(head)])]


def head_of_batch(batch: Batch, chain_job: int) -> LogHead | None:
    if batch.log_size is None or batch.log_root is None:
        return None
    return LogHead(chain_job, batch.log_size, batch.log_root)


def that_fit(rows: Sequence[Earned]) -> Sequence[Earned]:
    """Returns the first rows, up to those that fit into one transaction."""
    size, gas = 0, 0
    pairs: set[tuple[str, int]] = set()
    for taken, row in enumerate(rows):
        fresh = (row.worker, row.units) not in pairs
        pairs.add((row.worker, row.units))
        size += GRADIENT_BYTES + fresh * GROUP_BYTES
        gas += GRADIENT_GAS + fresh * GROUP_GAS
        if size > MAX_BATCH_BYTES or gas > MAX_BATCH_GAS:
            return rows[:taken]
    return rows
