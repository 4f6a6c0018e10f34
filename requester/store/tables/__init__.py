"""The tables, in the order data flows: job -> round -> task -> replica -> earned -> batch, and who takes part.

Money is in the job's units (signed 64-bit), times are Unix seconds, hashes 32 raw bytes, digests `blake3:<hex>`.
A row's `state` moves only by the tables of market.rules.lifecycle, by compare-and-set (store.transitions).
"""

from gradmarket.requester.store.tables.base import Base, BigKey
from gradmarket.requester.store.tables.doors import Consent, Duty, Idempotency, Nonce, Token, Trouble
from gradmarket.requester.store.tables.jobs import Event, Job, Round
from gradmarket.requester.store.tables.money import Account, Batch, Earned, Transaction
from gradmarket.requester.store.tables.trust import (
    Accusation,
    Audit,
    Calibration,
    Lean,
    Reputation,
    Score,
    Strike,
    TrustedRun,
)
from gradmarket.requester.store.tables.work import Replica, Task, Wave, Worker

__all__ = [
    "Account",
    "Accusation",
    "Audit",
    "Base",
    "Batch",
    "BigKey",
    "Calibration",
    "Consent",
    "Duty",
    "Earned",
    "Event",
    "Idempotency",
    "Job",
    "Lean",
    "Nonce",
    "Replica",
    "Reputation",
    "Round",
    "Score",
    "Strike",
    "Task",
    "Token",
    "Transaction",
    "Trouble",
    "TrustedRun",
    "Wave",
    "Worker",
]
