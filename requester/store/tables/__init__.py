"""The tables, in the order data flows: job -> round -> task -> replica -> earned -> batch, and the participants.

Money is in the job's units (signed 64-bit), times are Unix seconds, hashes 32 raw bytes, digests `blake3:<hex>`. A
row's `state` moves only as market.rules.lifecycle allows, by compare-and-set (store.transitions).
"""

from requester.store.tables.access_tables import ApiToken, ConsentRow, Idempotency, LeaderLease, Nonce, Trouble
from requester.store.tables.base import Base, BigKey
from requester.store.tables.job_tables import (
    Holder,
    Job,
    JobBlob,
    JobEvent,
    Round,
    UnneededBlob,
    UnservedBlob,
    UploadedBlob,
)
from requester.store.tables.money_tables import Account, Batch, Earned, Transaction
from requester.store.tables.task_tables import Replica, Reputation, Strike, Task, Wave, Worker

__all__ = [
    "Account",
    "ApiToken",
    "Base",
    "Batch",
    "BigKey",
    "ConsentRow",
    "Earned",
    "Holder",
    "Idempotency",
    "Job",
    "JobBlob",
    "JobEvent",
    "LeaderLease",
    "Nonce",
    "Replica",
    "Reputation",
    "Round",
    "Strike",
    "Task",
    "Transaction",
    "Trouble",
    "UnneededBlob",
    "UnservedBlob",
    "UploadedBlob",
    "Wave",
    "Worker",
]
