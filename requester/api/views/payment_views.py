"""Views of earnings, settlements, stakes, strikes and workers."""

from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Row

from gradmarket.market.terms import ReplicaState
from gradmarket.requester.api.views.formats import amount, hexed, time
from gradmarket.requester.api.views.trust_views import ReputationView
from gradmarket.requester.chain.owner import ToSign
from gradmarket.requester.store import strikes
from gradmarket.requester.store.tables import Account, Batch, Earned, Strike, Task, Transaction, Worker


class JobWorkerView(BaseModel):
    """One worker's standing in one job; amounts in smallest units."""

    address: str
    payout: str
    accepted: int
    rejected: int
    replicas: dict[str, int]
    earned: str
    reserved: str
    settled: str
    withdrawn: str
    at_risk: str
    """The part of its stake that the job can slash and that no accusation claims yet."""


ACCOUNT: Final = (
    *(Account.worker, Worker.payout, Account.earned, Account.reserved),
    *(Account.settled, Account.withdrawn, Account.at_risk),
)


def job_worker_view(account: Row[*tuple[Any, ...]], unit: str, states: dict[str, int]) -> JobWorkerView:
    """Of ACCOUNT's columns."""
    return JobWorkerView(
        address=account.worker,
        payout=account.payout,
        accepted=states.get(ReplicaState.PAYABLE, 0) + states.get(ReplicaState.DIVERGED, 0),
        rejected=states.get(ReplicaState.REJECTED, 0),
        replicas=states,
        earned=amount(account.earned, unit),
        reserved=amount(account.reserved, unit),
        settled=amount(account.settled, unit),
        withdrawn=amount(account.withdrawn, unit),
        at_risk=amount(account.at_risk, unit),
    )


class PaymentView(BaseModel):
    """One accepted gradient and the batch that carries it on-chain."""

    id: int
    worker: str
    task: str
    replica: str
    amount: str
    payload_root: str | None
    batch: int | None
    batch_state: str | None
    tx: str | None
    at: str | None


PAYMENT: Final = (
    *(Earned.id, Earned.worker, Earned.task_id, Earned.replica_id, Earned.units, Earned.digest, Earned.at),
    *(Batch.number, Batch.state.label("batch_state"), Transaction.hash.label("tx")),
    *(Task.round, Task.state, Task.reason),
)


def payment_view(row: Row[*tuple[Any, ...]], unit: str, published: bool) -> PaymentView:
    """Of PAYMENT's columns. `published`: the task's answer may be (store.disclosure)."""
    return PaymentView(
        id=row.id,
        worker=row.worker,
        task=row.task_id,
        replica=row.replica_id,
        amount=amount(row.units, unit),
        payload_root=hexed(row.digest) if published else None,
        batch=row.number,
        batch_state=row.batch_state,
        tx=row.tx,
        at=time(row.at),
    )


class SettlementView(BaseModel):
    batch: int
    state: str
    tx: str | None
    gas: int | None
    block: int | None
    gradients: int
    amount: str


def settlement_view(batch: Batch, tx: Transaction | None, unit: str) -> SettlementView:
    return SettlementView(
        batch=batch.number,
        state=batch.state,
        tx=tx.hash if tx else None,
        gas=tx.gas if tx else None,
        block=tx.block if tx else None,
        gradients=batch.gradients,
        amount=amount(batch.units, unit),
    )


class StakeView(BaseModel):
    """What of a worker's stake one job can slash, by the chain; in the token's smallest unit."""

    job: str
    chain_job: int | None
    at_risk: str


class StrikesView(BaseModel):
    """Answers that a worker's operator owed in one job and did not give, as they weigh now."""

    job: str
    weight: float
    suspended_until: str | None
    """Until then it gets no work of the job; null if it may get work now."""


def strikes_view(row: Strike, now: float) -> StrikesView:
    until = row.until if row.until > now else None
    return StrikesView(job=row.job_id, weight=round(strikes.weight(row, now), 3), suspended_until=time(until))


class WorkerView(BaseModel):
    address: str
    payout: str
    operator: str
    """Whose record it has: its payout address if that key consented, else the worker itself."""
    proven: bool
    """Whether its payout address is its operator: by that key's consent, or because it is the worker's own address."""
    determinism_class: str
    seen_at: str | None
    joined_at: str | None
    strikes: list[StrikesView]
    """Its operator's strikes, by job."""
    barred: bool
    """Whether an audit of its work, or of its operator's, failed not long ago, so that it gets no work."""
    copies: int
    """Answers it was paid for that an audit found wrong and another task had too; the copied worker's do not count."""
    reputation: list[ReputationView]
    """Its operator's record, by class."""
    stakes: list[StakeView]
    replicas: dict[str, int]


class EarningsView(BaseModel):
    """Per job: what was earned, and how far settlement has come."""

    job: str
    chain_job: int | None
    earned: str
    reserved: str
    settled: str
    withdrawn: str


class ToSignView(BaseModel):
    """A transaction for a wallet: EIP-1474's fields, without gas, fees and nonce, which are the wallet's to choose."""

    model_config = ConfigDict(serialize_by_alias=True, validate_by_name=True)

    purpose: str
    chain_id: int
    owner: str = Field(serialization_alias="from")
    to: str
    data: str
    value: str


def to_sign_view(row: ToSign) -> ToSignView:
    return ToSignView(
        purpose=row.purpose,
        chain_id=row.chain_id,
        owner=row.owner,
        to=row.call.to or "",
        data="0x" + row.call.data.hex(),
        value="0",
    )
