"""Calldata for calls of the contracts, one file for each part of the contract. Nothing here connects to a chain.

Amounts are in the job's units unless they are an Amount of the token; times are Unix seconds.
"""

from contracts.calls.encoding import Call, build_creation_call
from contracts.calls.escrow import (
    OpenJob,
    open_job,
    open_job_with_permit,
    refund,
    set_sender,
    top_up,
    top_up_with_permit,
    withdraw_free,
)
from contracts.calls.justice import accuse, burn, case_id, close_case, contest, contest_for, decide
from contracts.calls.reservations import close_job, release, release_for, reserve
from contracts.calls.settlement import settle_packed, settle_rooted
from contracts.calls.stake_calls import free_exposure, join_job, leave_job, quorum_of, stake, unstake
from contracts.calls.token import approve, mint, transfer
from contracts.calls.vouchers import (
    add_signer,
    collect,
    redeem,
    redeem_batch,
    set_payout,
    set_payout_for,
)

__all__ = [
    "Call",
    "OpenJob",
    "accuse",
    "add_signer",
    "approve",
    "build_creation_call",
    "burn",
    "case_id",
    "close_case",
    "close_job",
    "collect",
    "contest",
    "contest_for",
    "decide",
    "free_exposure",
    "join_job",
    "leave_job",
    "mint",
    "open_job",
    "open_job_with_permit",
    "quorum_of",
    "redeem",
    "redeem_batch",
    "refund",
    "release",
    "release_for",
    "reserve",
    "set_payout",
    "set_payout_for",
    "set_sender",
    "settle_packed",
    "settle_rooted",
    "stake",
    "top_up",
    "top_up_with_permit",
    "transfer",
    "unstake",
    "withdraw_free",
]
